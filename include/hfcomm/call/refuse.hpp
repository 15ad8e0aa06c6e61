// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <string>

#include <hfcomm/engine/operation.hpp>

namespace hfcomm {

class process_group;

namespace detail {

/// Tells whether an operation whose `running_call` threw had entered its group. If it had, it threw an error that an
/// earlier operation left behind, and the other ranks have been told. Otherwise it was refused, and they know nothing.
/// The group sets an operation's deadline as soon as the operation holds the group, which is what this looks at.
class entry_mark {
 public:
  explicit entry_mark(operation& call) noexcept : call_(&call) { call.timeout = unset; }
  [[nodiscard]] bool entered() const noexcept { return call_->timeout != unset; }

 private:
  static constexpr auto unset = std::chrono::nanoseconds::min();
  const operation* call_;
};

/// Tells the ranks that make or await `call` that this rank does not, because of `why`. Does not wait and does not
/// throw: the caller has an exception of its own. An error that an earlier operation left behind is told to the other
/// ranks instead of `why`, and thrown on this rank by the group's next operation.
void refuse(const process_group& group, operation call, const std::string& why) noexcept;

}  // namespace detail

}  // namespace hfcomm
