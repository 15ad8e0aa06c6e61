// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <exception>
#include <string>

#include <hfcomm/group/detail/running_call.hpp>

namespace hfcomm::detail {

/// Tells whether an operation whose `running_call` threw had entered its group: then it threw what an earlier operation
/// left behind, and the other ranks have been told. Otherwise it was refused, and they know nothing. The group gives an
/// operation its deadline as soon as it holds the group, and that is how to see it.
class entry_mark {
 public:
  explicit entry_mark(operation& call) noexcept : call_(&call) { call.timeout = unset; }
  [[nodiscard]] bool entered() const noexcept { return call_->timeout != unset; }

 private:
  static constexpr auto unset = std::chrono::nanoseconds::min();
  const operation* call_;
};

/// Tells the ranks that make or await `call` that this one does not, because of `why`. Does not wait. Where even that
/// fails, the caller's own exception is still the one to hear of; an error that an earlier operation left behind is
/// told to the other ranks instead of `why`, and this rank hears of it in the group's next operation.
inline void refuse(const process_group& group, operation call, const std::string& why) noexcept {
  const entry_mark mark(call);
  try {
    running_call(group, call).reject(why);
  } catch (...) {
    if (mark.entered()) {
      defer(group, std::current_exception());
    }
  }
}

}  // namespace hfcomm::detail
