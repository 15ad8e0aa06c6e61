// SPDX-License-Identifier: MIT
#pragma once

#include <exception>
#include <functional>
#include <source_location>
#include <string>
#include <type_traits>

#include <hfcomm/call/refuse.hpp>
#include <hfcomm/collectives/barrier.hpp>

namespace hfcomm {

namespace detail {

/// Tells the ranks that wait in the barrier called from `where` that this one does not come.
inline void refuse_barrier(const process_group& group, const std::string& why, std::source_location where) noexcept {
  refuse(group, {.name = "barrier", .where = where}, why);
}

}  // namespace detail

/// All ranks enter together and leave together: a barrier at the beginning and one at the end.
///
/// The constructor throws as `barrier` does. The destructor never throws: what goes wrong in the closing barrier is
/// thrown by the group's next operation, in which the other ranks then get peer_error. It waits no longer than the
/// group's deadline, and not at all where an exception leaves the scope: then the others, in their closing barrier, get
/// peer_error.
class barrier_scope {
 public:
  explicit barrier_scope(const process_group& group = world(),
                         std::source_location where = std::source_location::current())
      : group_(group), where_(where), exceptions_(std::uncaught_exceptions()) {
    barrier(group_, where_);
  }
  barrier_scope(const barrier_scope&) = delete;
  barrier_scope& operator=(const barrier_scope&) = delete;

  ~barrier_scope() {
    try {
      if (std::uncaught_exceptions() > exceptions_) {
        detail::refuse_barrier(group_, {}, where_);
      } else {
        barrier(group_, where_);
      }
    } catch (...) {
      detail::defer(group_, std::current_exception());
    }
  }

 private:
  process_group group_;
  std::source_location where_;
  int exceptions_;
};

/// Runs `function` between two barriers and returns what it returned: a reference as this very reference. Where it
/// throws on one rank, the others, once they are through with theirs, throw peer_error with the exception's text.
template <class Function>
std::invoke_result_t<Function&> run_barrier_scope(Function function, const process_group& group = world(),
                                                  std::source_location where = std::source_location::current()) {
  barrier(group, where);
  const auto guarded = [&]() -> decltype(auto) {
    try {
      return std::invoke(function);
    } catch (...) {
      detail::refuse_barrier(group, detail::current_exception_text(), where);
      throw;
    }
  };
  using result = std::invoke_result_t<Function&>;
  if constexpr (std::is_void_v<result>) {
    guarded();
    barrier(group, where);
  } else if constexpr (std::is_reference_v<result>) {
    result&& value = guarded();
    barrier(group, where);
    return static_cast<result>(value);
  } else {
    auto value = guarded();
    barrier(group, where);
    return value;
  }
}

}  // namespace hfcomm
