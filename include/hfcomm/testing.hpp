// SPDX-License-Identifier: MIT
#pragma once

/// Ranks as threads of one process, for tests.

#include <chrono>
#include <concepts>
#include <vector>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/function_ref.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm::testing {

struct run_ranks_options {
  /// The time that an operation waits for the other ranks. Short, so that a test fails instead of hanging.
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);
  /// The number of ranks on each of several pretended machines, {3, 1} for instance. local_group(), leader_group(),
  /// node_rank() and similar functions follow it. Empty: all ranks are on one machine.
  std::vector<int> machines{};
};

}  // namespace hfcomm::testing

namespace hfcomm::detail {

void run_ranks(int ranks, function_ref<void(const process_group&)> rank_main, const testing::run_ranks_options& options,
               call_site where);

}  // namespace hfcomm::detail

namespace hfcomm::testing {

/// Runs `rank_main(world)` on `ranks` threads of this process, over the same shared-memory engine that processes use,
/// and returns when all have ended. Inside, hfcomm::world() is that world too, so the code under test needs no change.
///
/// Where ranks throw, it rethrows the first exception that is not another rank's fault. That includes the error of a
/// dropped work or a scope's end that no later operation threw. Throws usage_error where such a world is impossible.
/// Threads that the code under test starts are not ranks: for them world() is a group of one.
template <std::invocable<const process_group&> RankMain>
void run_ranks(int ranks, RankMain rank_main, const run_ranks_options& options = {},
               call_site where = call_site::current()) {
  detail::run_ranks(ranks, rank_main, options, where);
}

}  // namespace hfcomm::testing

#if !defined(HFCOMM_COMPILED)
#include <hfcomm/impl.hpp>

#include <hfcomm/group/detail/run_ranks-inl.hpp>
#endif
