// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/shared_memory.hpp>
#include <hfcomm/machine/agent_bell.hpp>
#include <hfcomm/machine/roster.hpp>
#include <hfcomm/machine/segment_broker.hpp>
#include <hfcomm/machine/shared_segment.hpp>
#include <hfcomm/rendezvous/handshake.hpp>

namespace hfcomm::rendezvous {

/// The memory of one machine of a job.
struct machine_memory {
  std::shared_ptr<shared_segment> roster;
  std::shared_ptr<shared_segment> world;
  std::shared_ptr<shared_segment> local{};    ///< Of the machine's ranks; null where they are one, or all ranks.
  std::shared_ptr<shared_segment> leaders{};  ///< Of the machines' first ranks; null where there is one machine.
  std::shared_ptr<const agent_bell> bell{};   ///< Null where there is one machine.

  /// A function that makes a segment: shared_segment::create, or for ranks that are threads shared_segment::anonymous.
  using segment_maker = std::shared_ptr<shared_segment> (*)(std::size_t bytes, std::size_t room);

  /// Makes the memory of a job on one machine.
  static machine_memory make(int world_size, segment_maker make_segment = &shared_segment::create) {
    machine_memory made;
    made.roster = make_segment(roster::bytes_for(world_size), 0);
    roster::create_in(*made.roster, world_size);
    made.world = make_group(world_size, false, make_segment);
    return made;
  }

  /// Makes the memory of a group of so many ranks.
  static std::shared_ptr<shared_segment> make_group(int ranks, bool spans_machines, segment_maker make_segment) {
    const auto sizes = spans_machines ? engines::layout::dimensions::for_machines(ranks)
                                      : engines::layout::dimensions::for_ranks(ranks);
    auto segment = make_segment(sizes.total_bytes(), spans_machines ? 0 : sizes.heap_bytes());
    engines::layout::create_in(*segment, sizes);
    return segment;
  }
};

/// Makes the groups of `rank` in its machine's memory, and enters the roster. `agent_index` is the rank whose process
/// runs the machine's agent; `port` is null where there is one machine.
[[gnu::cold]] inline membership enter_machine(const machine_memory& memory, std::shared_ptr<engines::agent_port> port,
                                              int agent_index, int rank, int world_size,
                                              std::shared_ptr<segment_broker> broker = nullptr) {
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
