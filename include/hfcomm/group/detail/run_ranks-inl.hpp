// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
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

/// Ranks of one machine, as threads of this process.
class pretended_machine final : public pretended_job {
 public:
  explicit pretended_machine(int ranks)
      : memory_(rendezvous::machine_memory::make(ranks, &rendezvous::shared_segment::anonymous)) {
    for (int rank = 0; rank < ranks; ++rank) {
      memberships_.push_back(rendezvous::enter_machine(memory_, nullptr, 0, rank, ranks, broker_));
    }
  }

  [[nodiscard]] rendezvous::membership take(int rank) override {
    return std::move(memberships_[static_cast<std::size_t>(rank)]);
  }

 private:
  rendezvous::machine_memory memory_;
  std::shared_ptr<rendezvous::segment_broker> broker_ = std::make_shared<rendezvous::thread_broker>();
  std::vector<rendezvous::membership> memberships_;  // by rank
};

/// Makes the job whose machines have so many ranks. Throws usage_error.
inline std::unique_ptr<pretended_job> pretend_machines(const std::vector<int>& sizes, const error_context& context) {
  if (sizes.size() == 1) {
    return std::make_unique<pretended_machine>(sizes.front());
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
  const auto job = pretend_machines(options.machines.empty() ? usual_machines(ranks) : options.machines,
                                    {-1, 0, "run_ranks", 0, where});
  std::mutex mutex;
  std::exception_ptr own_fault;
  std::exception_ptr consequence;
  const auto run = [&](int rank) {
    auto joined = job->take(rank);
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
