// SPDX-License-Identifier: MIT
#pragma once

/// For your tests: ranks as threads of one process.

#include <chrono>
#include <concepts>
#include <source_location>
#include <vector>

#include <hfcomm/core/function_ref.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm::testing {

struct run_ranks_options {
  /// How long an operation waits for the other ranks; short, so that a test that hangs fails instead.
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);
  /// How many ranks each of several pretended machines has, {3, 1} for instance: what local_group(), leader_group(),
  /// node_rank() and their relatives then tell. Empty: all ranks are on one machine.
  std::vector<int> machines{};
};

}  // namespace hfcomm::testing

namespace hfcomm::detail {

void run_ranks(int ranks, function_ref<void(const process_group&)> rank_main, const testing::run_ranks_options& options,
               std::source_location where);

}  // namespace hfcomm::detail

namespace hfcomm::testing {

/// Runs `rank_main(world)` on `ranks` threads of this process, over the same shared-memory engine that processes use,
/// and returns when all have ended. Inside, hfcomm::world() is that world too, so the code under test needs no change.
/// Where ranks throw, the first exception that is not another rank's fault is rethrown; so is what a dropped work or a
/// scope's end met, where no operation was left to throw it; usage_error where there can be no such world. Threads that
/// the code under test starts are no ranks: to them world() is a group of one.
template <std::invocable<const process_group&> RankMain>
void run_ranks(int ranks, RankMain rank_main, const run_ranks_options& options = {},
               std::source_location where = std::source_location::current()) {
  detail::run_ranks(ranks, rank_main, options, where);
}

}  // namespace hfcomm::testing

#if !defined(HFCOMM_COMPILED)
#include <hfcomm/impl.hpp>

#include <hfcomm/group/detail/run_ranks-inl.hpp>
#endif
