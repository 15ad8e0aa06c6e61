// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include <hfcomm/engine/operation.hpp>

namespace hfcomm {

class process_group;

namespace detail {

/// Tells the ranks that make or await `call` that this rank does not, because of `why`. Does not wait for other ranks,
/// except in operations that this rank started or left before. Does not throw, because the caller already has an
/// exception. If an earlier operation left an error behind, the other ranks get that
/// error instead of `why`. The group's next operation throws it on this rank.
void announce_failure(const process_group& group, operation call, const std::string& why) noexcept;

}  // namespace detail

}  // namespace hfcomm
