// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
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
#include <hfcomm/engine/shared_memory/shared_memory.hpp>
#include <hfcomm/group/detail/deferred_errors.hpp>
#include <hfcomm/group/detail/group_state.hpp>
#include <hfcomm/group/detail/identity.hpp>
#include <hfcomm/rendezvous/local_rendezvous.hpp>
#include <hfcomm/testing.hpp>

namespace hfcomm::detail {

/// Divides the world into pretended machines. Collective.
HFCOMM_INLINE void pretend_machines(identity& own, const std::vector<int>& machines) {
  std::vector<int> leaders;
  int first = 0;
  for (std::size_t node = 0; node < machines.size(); ++node) {
    leaders.push_back(first);
    first += machines[node];
    if (own.world.rank() >= leaders.back() && own.world.rank() < first) {
      own.node = static_cast<int>(node);
    }
  }
  own.nodes = static_cast<int>(machines.size());
  own.local = own.world.split(own.node);
  own.leaders = own.world.subgroup(leaders);
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
  const auto sizes = engines::layout::dimensions::for_ranks(ranks);
  auto roster_segment = rendezvous::shared_segment::anonymous(rendezvous::roster::bytes_for(ranks));
  rendezvous::roster::create_in(*roster_segment, ranks);
  auto memory = rendezvous::shared_segment::anonymous(sizes.total_bytes(), sizes.heap_bytes());
  engines::layout::create_in(*memory, sizes);
  const auto broker = std::make_shared<rendezvous::thread_broker>();
  std::vector<int> members;
  std::vector<std::shared_ptr<rendezvous::roster>> rosters;
  for (int rank = 0; rank < ranks; ++rank) {
    members.push_back(rank);
    rosters.push_back(std::make_shared<rendezvous::roster>(roster_segment, ranks, rank));
    rosters.back()->enter();
  }

  std::mutex mutex;
  std::exception_ptr own_fault;
  std::exception_ptr consequence;
  const auto run = [&](int rank) {
    auto job = std::make_shared<engines::local_job>();
    job->roster = rosters[static_cast<std::size_t>(rank)];
    job->broker = broker;
    identity own;
    own.world =
        group_access::make(std::make_shared<engines::shared_memory>(memory, job, members, rank), options.timeout);
    own.local = own.world;
    own.leaders = rank == 0 ? std::optional(process_group().with_timeout(options.timeout)) : std::nullopt;
    own.initialized = true;
    thread_identity() = &own;
    try {
      if (!options.machines.empty()) {
        pretend_machines(own, options.machines);
      }
      deferred_error_sink deferred_errors;
      rank_main(std::as_const(own.world));
      deferred_errors.rethrow(own.world);
      job->roster->leave();
    } catch (const peer_error& problem) {
      job->roster->fail(problem.what(), true);
      const std::scoped_lock lock(mutex);
      consequence = consequence ? consequence : std::current_exception();
    } catch (...) {
      job->roster->fail(current_exception_text());
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
