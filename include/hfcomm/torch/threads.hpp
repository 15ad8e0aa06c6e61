// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/core/config.hpp>

namespace hfcomm::torch {

/// Divides this process's cores among the ranks of this machine: LibTorch's parallel loops get that many threads, at
/// least 1. Returns their number. LibTorch itself uses all cores in each process.
///
/// To be called by each rank before its first use of LibTorch. Not where a launcher has given the ranks cores of their
/// own. Not collective.
int set_threads_for_ranks();

}  // namespace hfcomm::torch
