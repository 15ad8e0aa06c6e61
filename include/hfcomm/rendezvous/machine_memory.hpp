// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/engine/hierarchical/agent_socket.hpp>
#include <hfcomm/engine/shared_memory/job.hpp>
#include <hfcomm/engine/shared_memory/shared_memory.hpp>
#include <hfcomm/machine/agent_bell.hpp>
#include <hfcomm/machine/roster.hpp>
#include <hfcomm/machine/segment_broker.hpp>
#include <hfcomm/machine/shared_segment.hpp>
#include <hfcomm/rendezvous/handshake.hpp>
#include <hfcomm/rendezvous/job_plan.hpp>

namespace hfcomm::rendezvous {

/// The numbers of the groups that agents carry from the start.
inline constexpr std::uint64_t world_group_id = 1;
inline constexpr std::uint64_t leader_group_id = 2;

/// The memory of one machine of a job.
struct machine_memory {
  std::shared_ptr<shared_segment> roster;
  std::shared_ptr<shared_segment> world;
  std::shared_ptr<shared_segment> local{};    ///< Of the machine's ranks; null where they are one, or all ranks.
  std::shared_ptr<shared_segment> leaders{};  ///< Of the machines' first ranks; null where there is one machine.
  std::shared_ptr<const agent_bell> bell{};   ///< Null where there is one machine.

  /// A function that makes a segment: shared_segment::create, or for ranks that are threads shared_segment::anonymous.
  using segment_maker = std::shared_ptr<shared_segment> (*)(std::size_t bytes, std::size_t room);

  /// Makes the memory of machine `self`, whose roster has the ranks of the others.
  static machine_memory make(const job_plan& plan, int self, int world_size,
                             segment_maker make_segment = &shared_segment::create) {
    machine_memory made;
    const auto make_group = [make_segment](int ranks, bool spans_machines) {
      const auto sizes = spans_machines ? engines::layout::dimensions::for_machines(ranks)
                                        : engines::layout::dimensions::for_ranks(ranks);
      auto segment = make_segment(sizes.total_bytes(), spans_machines ? 0 : sizes.heap_bytes());
      engines::layout::create_in(*segment, sizes);
      return segment;
    };
    const bool is_one_machine = plan.machines.size() == 1;
    made.roster = make_segment(roster::bytes_for(world_size), 0);
    roster::create_in(*made.roster, world_size);
    made.world = make_group(world_size, !is_one_machine);
    if (is_one_machine) {
      return made;
    }
    const machine_part& own = plan.machines[static_cast<std::size_t>(self)];
    if (own.ranks.size() > 1) {
      made.local = make_group(static_cast<int>(own.ranks.size()), false);
    }
    made.leaders = make_group(static_cast<int>(plan.machines.size()), true);
    made.bell = agent_bell::make(make_segment(sizeof(agent_board), 0));
    rendezvous::roster table(made.roster, world_size, 0);
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
};

/// Makes the groups of `rank` in its machine's memory, and enters the roster. `agent_index` is the rank whose process
/// runs the machine's agent; `port` is null where there is one machine.
inline membership enter_machine(const machine_memory& memory, std::shared_ptr<engines::agent_port> port,
                                int agent_index, int rank, int world_size,
                                std::shared_ptr<segment_broker> broker = std::make_shared<process_broker>()) {
  auto job = std::make_shared<engines::local_job>();
  job->roster = std::make_shared<roster>(memory.roster, world_size, rank);
  job->broker = std::move(broker);
  std::vector<int> all;
  std::vector<int> local;
  std::vector<int> leaders;
  for (int other = 0; other < world_size; ++other) {
    all.push_back(other);
    const int machine = job->roster->machine(other);
    if (machine == job->roster->machine(rank)) {
      local.push_back(other);
    }
    const auto is_there = [&](int leader) { return job->roster->machine(leader) == machine; };
    if (std::none_of(leaders.begin(), leaders.end(), is_there)) {
      leaders.push_back(other);
    }
  }
  membership made;
  if (port != nullptr) {
    for (const int other : all) {
      job->machine_of.push_back(job->roster->machine(other));
    }
    job->port = std::move(port);
    job->roster->set_agent(agent_index);
    made.node = job->roster->machine(rank);
    made.nodes = static_cast<int>(leaders.size());
  }
  job->roster->enter();
  const auto make_engine = [&](const std::shared_ptr<shared_segment>& segment, const std::vector<int>& members) {
    const auto place = std::find(members.begin(), members.end(), rank);
    return std::make_shared<engines::shared_memory>(segment, job, members, static_cast<int>(place - members.begin()));
  };
  made.engine = make_engine(memory.world, all);
  if (memory.local != nullptr) {
    made.local = make_engine(memory.local, local);
  }
  if (memory.leaders != nullptr && leaders[static_cast<std::size_t>(job->roster->machine(rank))] == rank) {
    made.leaders = make_engine(memory.leaders, leaders);
  }
  made.roster = job->roster;
  return made;
}

}  // namespace hfcomm::rendezvous
