// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <source_location>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/hierarchical/direct_agent_port.hpp>
#include <hfcomm/engine/hierarchical/machine_agent.hpp>
#include <hfcomm/engine/hierarchical/memory_control.hpp>
#include <hfcomm/engine/links/memory_link.hpp>
#include <hfcomm/engine/shared_memory/shared_memory.hpp>
#include <hfcomm/group/detail/deferred_errors.hpp>
#include <hfcomm/group/detail/group_state.hpp>
#include <hfcomm/group/detail/identity.hpp>
#include <hfcomm/rendezvous/job_plan.hpp>
#include <hfcomm/rendezvous/machine_memory.hpp>
#include <hfcomm/testing.hpp>

namespace hfcomm::detail {

/// Machines whose ranks are threads of this process. Each has a roster and memory of its own. What passes between them
/// goes through their agents.
class pretended_machines {
 public:
  /// `sizes` has the number of ranks of each machine.
  explicit pretended_machines(const std::vector<int>& sizes) {
    for (const int size : sizes) {
      rendezvous::machine_part part;
      part.leader = ranks_;
      part.host = "machine " + std::to_string(plan_.machines.size());
      for (int place = 0; place < size; ++place) {
        part.ranks.push_back(ranks_++);
        part.pids.push_back(static_cast<int>(::getpid()));
      }
      plan_.machines.push_back(std::move(part));
    }
    machine_of_ = plan_.machine_of(ranks_);
    for (int machine = 0; machine < static_cast<int>(sizes.size()); ++machine) {
      memories_.push_back(
          rendezvous::machine_memory::make(plan_, machine, ranks_, &rendezvous::shared_segment::anonymous));
    }
    if (sizes.size() > 1) {
      start_agents();
    }
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto machine = static_cast<std::size_t>(machine_of_[static_cast<std::size_t>(rank)]);
      auto port = agents_.empty() ? nullptr : std::make_shared<engines::direct_agent_port>(agents_[machine]);
      memberships_.push_back(rendezvous::enter_machine(memories_[machine], std::move(port),
                                                       plan_.machines[machine].leader, rank, ranks_, broker_));
    }
    for (const auto& agent : agents_) {
      agent->start();
    }
  }
  /// Waits until what the ranks wrote has arrived, because agents answer each other until then.
  ~pretended_machines() {
    memberships_.clear();
    std::vector<std::jthread> threads;
    for (const auto& agent : agents_) {
      threads.emplace_back([&agent] { static_cast<void>(agent->finish(std::chrono::seconds(10))); });
    }
  }
  pretended_machines(const pretended_machines&) = delete;
  pretended_machines& operator=(const pretended_machines&) = delete;

  /// Takes what `rank` has of its job. Once for each rank.
  [[nodiscard]] rendezvous::membership take(int rank) {
    return std::move(memberships_[static_cast<std::size_t>(rank)]);
  }

 private:
  std::unique_ptr<engines::link> make_link(int machine) {
    auto end = network_.make_end();
    end->open(machine, {});
    return end;
  }

  void start_agents() {
    const int count = static_cast<int>(plan_.machines.size());
    const auto controls = std::make_shared<engines::control_hub>(count);
    std::vector<int> all(static_cast<std::size_t>(ranks_));
    std::iota(all.begin(), all.end(), 0);
    for (int machine = 0; machine < count; ++machine) {
      const auto& memory = memories_[static_cast<std::size_t>(machine)];
      const int leader = plan_.machines[static_cast<std::size_t>(machine)].leader;
      agents_.push_back(std::make_shared<engines::machine_agent>(
          engines::machine_agent::parts{.self = machine,
                                        .machine_of = machine_of_,
                                        .leaders = plan_.leaders(),
                                        .roster = std::make_shared<rendezvous::roster>(memory.roster, ranks_, leader),
                                        .link = make_link(machine),
                                        .control = std::make_unique<engines::memory_control>(controls, machine),
                                        .bell = memory.bell}));
      agents_.back()->add_group(rendezvous::world_group_id, all, memory.world);
      agents_.back()->add_group(rendezvous::leader_group_id, plan_.first_ranks(), memory.leaders);
    }
  }

  int ranks_ = 0;
  rendezvous::job_plan plan_;
  std::vector<int> machine_of_;  // by rank
  engines::memory_network network_;
  std::vector<rendezvous::machine_memory> memories_;             // by machine
  std::vector<std::shared_ptr<engines::machine_agent>> agents_;  // by machine; empty where there is one
  std::shared_ptr<rendezvous::segment_broker> broker_ = std::make_shared<rendezvous::thread_broker>();
  std::vector<rendezvous::membership> memberships_;  // by rank
};

/// Returns how many ranks each machine has where the options do not say: all are on one, or divided over as many
/// machines as HFCOMM_PRETEND_MACHINES says.
HFCOMM_INLINE std::vector<int> usual_machines(int ranks) {
  const char* const text = std::getenv("HFCOMM_PRETEND_MACHINES");
  const int count = std::clamp(text != nullptr ? std::atoi(text) : 1, 1, ranks);
  std::vector<int> sizes;
  for (int machine = 0; machine < count; ++machine) {
    sizes.push_back(ranks / count + (machine < ranks % count ? 1 : 0));
  }
  return sizes;
}

HFCOMM_INLINE void run_ranks(int ranks, function_ref<void(const process_group&)> rank_main,
                             const testing::run_ranks_options& options, std::source_location where) {
  if (ranks < 1 || ranks > engines::layout::max_ranks) {
    throw usage_error({-1, 0, "run_ranks", 0, where}, "cannot run " + std::to_string(ranks) +
                                                          " ranks; the number must be from 1 to " +
                                                          std::to_string(engines::layout::max_ranks));
  }
  if (!options.machines.empty() && (std::accumulate(options.machines.begin(), options.machines.end(), 0) != ranks ||
                                    *std::min_element(options.machines.begin(), options.machines.end()) < 1)) {
    throw usage_error({-1, 0, "run_ranks", 0, where},
                      "the machines must have at least 1 rank each and " + std::to_string(ranks) + " altogether");
  }
  pretended_machines machines(options.machines.empty() ? usual_machines(ranks) : options.machines);
  std::mutex mutex;
  std::exception_ptr own_fault;
  std::exception_ptr consequence;
  const auto run = [&](int rank) {
    auto joined = machines.take(rank);
    const auto roster = joined.roster;
    identity own = identity_of(std::move(joined), options.timeout);
    thread_identity() = &own;
    try {
      deferred_error_sink deferred_errors;
      rank_main(std::as_const(own.world));
      deferred_errors.rethrow(own.world);
      roster->leave();
    } catch (const peer_error& problem) {
      roster->fail(problem.what(), true);
      const std::scoped_lock lock(mutex);
      consequence = consequence ? consequence : std::current_exception();
    } catch (...) {
      roster->fail(current_exception_text());
      const std::scoped_lock lock(mutex);
      own_fault = own_fault ? own_fault : std::current_exception();
    }
    thread_identity() = nullptr;
  };
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back(run, rank);
    }
  }
  if (own_fault || consequence) {
    std::rethrow_exception(own_fault ? own_fault : consequence);
  }
}

}  // namespace hfcomm::detail
