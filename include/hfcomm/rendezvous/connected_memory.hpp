// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include <hfcomm/engine/hierarchical/machine_agent.hpp>
#include <hfcomm/machine/agent_bell.hpp>
#include <hfcomm/machine/roster.hpp>
#include <hfcomm/machine/shared_segment.hpp>
#include <hfcomm/rendezvous/job_plan.hpp>
#include <hfcomm/rendezvous/machine_memory.hpp>

namespace hfcomm::rendezvous {

/// The numbers of the groups that agents carry from the start.
inline constexpr std::uint64_t world_group_id = 1;
inline constexpr std::uint64_t leader_group_id = 2;

/// Makes the memory of machine `self`, whose roster has the ranks of the others. The plan may have one machine.
inline machine_memory make_connected_memory(const job_plan& plan, int self, int world_size,
                                            machine_memory::segment_maker make_segment = &shared_segment::create) {
  if (plan.machines.size() == 1) {
    return machine_memory::make(world_size, make_segment);
  }
  machine_memory made;
  made.roster = make_segment(roster::bytes_for(world_size), 0);
  roster::create_in(*made.roster, world_size);
  made.world = machine_memory::make_group(world_size, true, make_segment);
  const machine_part& own = plan.machines[static_cast<std::size_t>(self)];
  if (own.ranks.size() > 1) {
    made.local = machine_memory::make_group(static_cast<int>(own.ranks.size()), false, make_segment);
  }
  made.leaders = machine_memory::make_group(static_cast<int>(plan.machines.size()), true, make_segment);
  made.bell = agent_bell::make(make_segment(sizeof(agent_board), 0));
  roster table(made.roster, world_size, 0);
  for (std::size_t machine = 0; machine < plan.machines.size(); ++machine) {
    const machine_part& part = plan.machines[machine];
    for (std::size_t place = 0; place < part.ranks.size(); ++place) {
      table.set_machine(part.ranks[place], static_cast<int>(machine));
      if (static_cast<int>(machine) != self) {
        table.enter_remote(part.ranks[place], part.pids[place], part.host);
      }
    }
  }
  return made;
}

/// Makes the agent of a machine, with the groups that agents carry from the start. `from` need not have what the plan
/// and the memory tell.
inline std::shared_ptr<engines::machine_agent> make_agent(const job_plan& plan, const machine_memory& memory,
                                                          int world_size, engines::machine_agent::parts from) {
  const int leader = plan.machines[static_cast<std::size_t>(from.self)].leader;
  from.machine_of = plan.machine_of(world_size);
  from.leaders = plan.leaders();
  from.roster = std::make_shared<roster>(memory.roster, world_size, leader);
  from.bell = memory.bell;
  auto agent = std::make_shared<engines::machine_agent>(std::move(from));
  std::vector<int> all(static_cast<std::size_t>(world_size));
  std::iota(all.begin(), all.end(), 0);
  agent->add_group(world_group_id, all, memory.world);
  agent->add_group(leader_group_id, plan.first_ranks(), memory.leaders);
  return agent;
}

}  // namespace hfcomm::rendezvous
