// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include <hfcomm/core/config.hpp>

namespace hfcomm::torch {

namespace detail {

/// Returns a rank's share of a machine's cores.
[[nodiscard]] constexpr int threads_of_rank(int cores, int ranks) noexcept { return std::max(cores / ranks, 1); }

}  // namespace detail

/// Divides this process's cores among the ranks of this machine: LibTorch's parallel loops get that many threads, at
/// least 1. Returns their number. LibTorch itself uses all cores in each process.
///
/// To be called by each rank before its first use of LibTorch. Not where a launcher has given the ranks cores of their
/// own. Not collective.
int set_threads_for_ranks();

}  // namespace hfcomm::torch
