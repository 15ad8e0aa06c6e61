// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include <hfcomm/engine/operation.hpp>

namespace hfcomm {

class process_group;

namespace detail {

/// Tells the ranks that make or await `call` that this rank does not, because of `why`. Does not wait and does not
/// throw: the caller has an exception of its own. An error that an earlier operation left behind is told to the other
/// ranks instead of `why`, and thrown on this rank by the group's next operation.
void refuse(const process_group& group, operation call, const std::string& why) noexcept;

}  // namespace detail

}  // namespace hfcomm
