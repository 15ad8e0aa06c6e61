// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <source_location>
#include <thread>
#include <utility>
#include <vector>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/shared_memory/shared_memory.hpp>
#include <hfcomm/group/detail/deferred_errors.hpp>
#include <hfcomm/group/detail/group_state.hpp>
#include <hfcomm/group/detail/identity.hpp>
#include <hfcomm/group/detail/several_machines.hpp>
#include <hfcomm/machine/segment_broker.hpp>
#include <hfcomm/machine/shared_segment.hpp>
#include <hfcomm/rendezvous/machine_memory.hpp>
#include <hfcomm/testing.hpp>

namespace hfcomm::detail {

/// Makes a job of ranks of one machine, as threads of this process.
HFCOMM_INLINE pretended_job pretend_machine(int ranks) {
  const auto memory = rendezvous::machine_memory::make(ranks, &rendezvous::shared_segment::anonymous);
  const auto broker = std::make_shared<rendezvous::thread_broker>();
  pretended_job job;
  for (int rank = 0; rank < ranks; ++rank) {
    job.memberships.push_back(rendezvous::enter_machine(memory, nullptr, 0, rank, ranks, broker));
  }
  return job;
}

/// Makes the job whose machines have so many ranks. Throws usage_error.
inline pretended_job pretend_machines(const std::vector<int>& sizes, const error_context& context) {
  if (sizes.size() == 1) {
    return pretend_machine(sizes.front());
  }
  const several_machines* const several = find_several_machines();
  if (several == nullptr) {
    throw_error<usage_error>(context, {"ranks on ", sizes.size(), " pretended machines: ", include_machines});
  }
  return several->pretend(sizes);
}

/// Returns how many ranks each machine has where the options do not say: all are on one, or divided over as many
/// machines as HFCOMM_PRETEND_MACHINES says.
HFCOMM_INLINE std::vector<int> usual_machines(int ranks) {
  const char* const text = std::getenv("HFCOMM_PRETEND_MACHINES");
  const int count = std::clamp(text != nullptr ? std::atoi(text) : 1, 1, ranks);
  std::vector<int> sizes;
  for (int machine = 0; machine < count; ++machine) {
    sizes.push_back(ranks / count + (machine < ranks % count ? 1 : 0));  // NOLINT
  }
  return sizes;
}

HFCOMM_INLINE void run_ranks(int ranks, function_ref<void(const process_group&)> rank_main,
                             const testing::run_ranks_options& options, std::source_location where) {
  if (ranks < 1 || ranks > engines::layout::max_ranks) {
    throw_error<usage_error>(
        {-1, 0, "run_ranks", 0, where},
        {"cannot run ", ranks, " ranks; the number must be from 1 to ", engines::layout::max_ranks});
  }
  if (!options.machines.empty() && (std::accumulate(options.machines.begin(), options.machines.end(), 0) != ranks ||
                                    *std::min_element(options.machines.begin(), options.machines.end()) < 1)) {
    throw_error<usage_error>({-1, 0, "run_ranks", 0, where},
                             {"the machines must have at least 1 rank each and ", ranks, " altogether"});
  }
  auto job = pretend_machines(options.machines.empty() ? usual_machines(ranks) : options.machines,
                              {-1, 0, "run_ranks", 0, where});
  std::mutex mutex;
  std::exception_ptr own_fault;
  std::exception_ptr consequence;
  const auto run = [&](int rank) {
    auto joined = std::move(job.memberships[static_cast<std::size_t>(rank)]);
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
      threads.emplace_back(run, rank);  // NOLINT
    }
  }
  if (own_fault || consequence) {
    std::rethrow_exception(own_fault ? own_fault : consequence);
  }
}

}  // namespace hfcomm::detail
