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
#include <hfcomm/engine/hierarchical/machine_agent.hpp>
#include <hfcomm/engine/hierarchical/memory_control.hpp>
#include <hfcomm/engine/links/memory_link.hpp>
#include <hfcomm/engine/shared_memory/shared_memory.hpp>
#include <hfcomm/group/detail/deferred_errors.hpp>
#include <hfcomm/group/detail/group_state.hpp>
#include <hfcomm/group/detail/identity.hpp>
#include <hfcomm/rendezvous/local_rendezvous.hpp>
#include <hfcomm/testing.hpp>

namespace hfcomm::detail {

/// Machines whose ranks are threads of this process. Each has a roster and memory of its own. What passes between them
/// goes through their agents.
class pretended_machines {
 public:
  /// `sizes` has the number of ranks of each machine.
  explicit pretended_machines(const std::vector<int>& sizes) {
    for (const int size : sizes) {
      first_ranks_.push_back(static_cast<int>(machine_of_.size()));
      machine_of_.insert(machine_of_.end(), static_cast<std::size_t>(size), static_cast<int>(machines_.size()));
      machines_.emplace_back();
    }
    for (int rank = 0; rank < ranks(); ++rank) {
      members_.push_back(rank);
    }
    const auto layout = is_one_machine() ? engines::layout::dimensions::for_ranks(ranks())
                                         : engines::layout::dimensions::for_machines(ranks());
    for (machine& one : machines_) {
      one.roster = rendezvous::shared_segment::anonymous(rendezvous::roster::bytes_for(ranks()));
      rendezvous::roster::create_in(*one.roster, ranks());
      one.memory =
          rendezvous::shared_segment::anonymous(layout.total_bytes(), is_one_machine() ? layout.heap_bytes() : 0);
      engines::layout::create_in(*one.memory, layout);
    }
    for (int rank = 0; rank < ranks(); ++rank) {
      rosters_.push_back(std::make_shared<rendezvous::roster>(machine_of(rank).roster, ranks(), rank));
      rosters_.back()->enter();
    }
    if (!is_one_machine()) {
      connect();
    }
  }
  /// Waits until what the ranks wrote has arrived, because agents answer each other until then.
  ~pretended_machines() {
    std::vector<std::jthread> threads;
    for (machine& one : machines_) {
      if (one.agent) {
        threads.emplace_back([&one] { static_cast<void>(one.agent->finish(std::chrono::seconds(10))); });
      }
    }
  }
  pretended_machines(const pretended_machines&) = delete;
  pretended_machines& operator=(const pretended_machines&) = delete;

  [[nodiscard]] int ranks() const { return static_cast<int>(machine_of_.size()); }
  [[nodiscard]] const std::shared_ptr<rendezvous::roster>& roster(int rank) const {
    return rosters_[static_cast<std::size_t>(rank)];
  }

  [[nodiscard]] std::shared_ptr<engines::host_engine> make_world(int rank) const {
    auto job = std::make_shared<engines::local_job>();
    job->roster = roster(rank);
    job->broker = broker_;
    if (!is_one_machine()) {
      const auto node = static_cast<std::size_t>(machine_of_[static_cast<std::size_t>(rank)]);
      job->machine_of = machine_of_;
      job->port = std::make_shared<engines::direct_agent_port>(machines_[node].agent);
      job->agent_index = first_ranks_[node];
    }
    return std::make_shared<engines::shared_memory>(machine_of(rank).memory, std::move(job), members_, rank);
  }

  /// Makes the groups of this rank's machine and of the machines' first ranks. Collective.
  void divide(identity& own) const {
    if (is_one_machine()) {
      own.local = own.world;
      own.leaders =
          own.world.rank() == 0 ? std::optional(process_group().with_timeout(own.world.timeout())) : std::nullopt;
      return;
    }
    own.node = machine_of_[static_cast<std::size_t>(own.world.rank())];
    own.nodes = static_cast<int>(machines_.size());
    own.local = own.world.split(own.node);
    own.leaders = own.world.subgroup(first_ranks_);
  }

 private:
  struct machine {
    std::shared_ptr<rendezvous::shared_segment> roster;
    std::shared_ptr<rendezvous::shared_segment> memory;
    std::shared_ptr<engines::machine_agent> agent;
  };

  [[nodiscard]] bool is_one_machine() const { return machines_.size() == 1; }
  [[nodiscard]] const machine& machine_of(int rank) const {
    return machines_[static_cast<std::size_t>(machine_of_[static_cast<std::size_t>(rank)])];
  }

  void connect() {
    const int count = static_cast<int>(machines_.size());
    const auto hub = std::make_shared<engines::memory_hub>(count);
    const auto controls = std::make_shared<engines::control_hub>(count);
    for (int node = 0; node < count; ++node) {
      machine& mine = machines_[static_cast<std::size_t>(node)];
      const auto& roster = rosters_[static_cast<std::size_t>(first_ranks_[static_cast<std::size_t>(node)])];
      for (int rank = 0; rank < ranks(); ++rank) {
        if (machine_of_[static_cast<std::size_t>(rank)] != node) {
          roster->enter_remote(rank, ::getpid(),
                               "machine " + std::to_string(machine_of_[static_cast<std::size_t>(rank)]));
        }
      }
      auto board = rendezvous::shared_segment::anonymous(sizeof(rendezvous::agent_board));
      rendezvous::agent_bell::create_in(*board);
      mine.agent = std::make_shared<engines::machine_agent>(
          engines::machine_agent::parts{.self = node,
                                        .machine_of = machine_of_,
                                        .roster = roster,
                                        .link = std::make_unique<engines::memory_link>(hub, node),
                                        .control = std::make_unique<engines::memory_control>(controls, node),
                                        .board = std::move(board)});
      mine.agent->add_group(world_id, members_, mine.memory);
    }
  }

  static constexpr std::uint64_t world_id = 1;

  std::vector<int> machine_of_;   // by rank
  std::vector<int> first_ranks_;  // by machine
  std::vector<int> members_;
  std::vector<std::shared_ptr<rendezvous::roster>> rosters_;  // by rank
  std::shared_ptr<rendezvous::thread_broker> broker_ = std::make_shared<rendezvous::thread_broker>();
  std::vector<machine> machines_;
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
  const pretended_machines machines(options.machines.empty() ? usual_machines(ranks) : options.machines);
  std::mutex mutex;
  std::exception_ptr own_fault;
  std::exception_ptr consequence;
  const auto run = [&](int rank) {
    const auto& roster = machines.roster(rank);
    identity own;
    own.world = group_access::make(machines.make_world(rank), options.timeout);
    own.initialized = true;
    thread_identity() = &own;
    try {
      machines.divide(own);
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
