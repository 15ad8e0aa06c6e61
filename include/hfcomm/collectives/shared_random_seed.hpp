// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/group/session.hpp>
#include <hfcomm/group/work.hpp>

namespace hfcomm {

/// Returns one random 64-bit number, the same on every rank. The group's rank 0 draws it from the operating system; no
/// generator's state changes. Collective. (detectron2's `shared_random_seed`, MMEngine's `sync_random_seed`.)
[[nodiscard]] std::uint64_t shared_random_seed(const process_group& group = world(),
                                               call_site where = call_site::current());

/// Starts to draw a number for all ranks; it is the work's value.
work<std::uint64_t> shared_random_seed_async(const process_group& group = world(),
                                             call_site where = call_site::current());

}  // namespace hfcomm
