// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>
#include <type_traits>

#include <hfcomm/collectives/barrier.hpp>
#include <hfcomm/core/call_site.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm {

namespace detail {

/// Tells the ranks that wait in the barrier called from `where` that this rank does not enter it.
void announce_barrier_failure(const process_group& group, const std::string& why, call_site where) noexcept;

/// Tells them the exception's text. To be called in a handler.
void announce_barrier_exception(const process_group& group, call_site where);

}  // namespace detail

/// A scope with a barrier at its beginning and one at its end: all ranks enter together and leave together.
///
/// The constructor throws as `barrier` does. The destructor never throws: an error of the closing barrier is thrown by
/// the group's next operation, in which the other ranks then get peer_error. It waits no longer than the group's
/// deadline. When an exception leaves the scope, the destructor does not wait, and the others get peer_error in their
/// closing barrier.
class barrier_scope {
 public:
  explicit barrier_scope(const process_group& group = world(), call_site where = call_site::current());
  barrier_scope(const barrier_scope&) = delete;
  barrier_scope& operator=(const barrier_scope&) = delete;

  ~barrier_scope();

 private:
  process_group group_;
  call_site where_;
  int exceptions_;
};

/// Runs `function` between two barriers and returns its result; a reference stays a reference. Where it throws on one
/// rank, the others throw peer_error with the exception's text when their own call of it has ended.
template <class Function>
std::invoke_result_t<Function&> run_barrier_scope(Function function, const process_group& group = world(),
                                                  call_site where = call_site::current()) {
  barrier(group, where);
  const auto guarded = [&]() -> decltype(auto) {
    try {
      return std::invoke(function);
    } catch (...) {
      detail::announce_barrier_exception(group, where);
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
