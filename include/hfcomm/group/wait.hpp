// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <vector>

#include <hfcomm/group/work.hpp>

namespace hfcomm {

/// Works of one type: a std::vector<work<int>>, a std::span<work<>>, ... They may be of several groups.
template <class R>
concept work_range =
    std::ranges::forward_range<R> && detail::is_work<std::remove_cvref_t<std::ranges::range_reference_t<R>>>;

namespace detail {

template <work_range R>
[[nodiscard]] std::vector<work_state*> states_of(R& works) {
  std::vector<work_state*> states;
  states.reserve(static_cast<std::size_t>(std::ranges::distance(works)));
  for (const auto& one : works) {
    states.push_back(work_access::state(one));
  }
  return states;
}

/// Waits until one of the works is done or the deadline has passed; null is no deadline. Returns the index of the first
/// that is done, nullopt where none is. Throws usage_error where there are no works.
[[nodiscard]] std::optional<std::size_t> wait_for_one(std::span<work_state* const> works,
                                                      const std::chrono::steady_clock::time_point* deadline);

/// Waits until all works are done or the deadline has passed; null is no deadline. Returns whether all are done.
[[nodiscard]] bool wait_for_each(std::span<work_state* const> works,
                                 const std::chrono::steady_clock::time_point* deadline);

/// Rethrows the error of the first work that has one. The errors of the others count as read.
void rethrow_first(std::span<work_state* const> works);

/// Takes the value of a work that is done; the tuple is empty for work<void>.
template <class T>
[[nodiscard]] auto value_in_tuple(work<T>& one) {
  if constexpr (std::is_void_v<T>) {
    one.wait();
    return std::tuple<>();
  } else {
    return std::tuple<T>(one.wait());
  }
}

}  // namespace detail

/// Waits until one of the works is done, with a value or an error, and returns its index; the lowest where several are.
/// Its value is still to be taken, by `wait`. A work whose value was taken counts as done, so remove it before the next
/// call. To wait for a message here counts as waiting for it (see `recv` from any_source) until it is done. Throws
/// usage_error where there are no works, for one that was moved from, and where `wait` would be a
/// deadlock. (MPI's `MPI_Waitany`.)
template <work_range R>
[[nodiscard]] std::size_t wait_any(R&& works) {
  return *detail::wait_for_one(detail::states_of(works), nullptr);
}

/// The same for works of any types: `wait_any(left, right)`.
template <class... Works>
  requires(detail::is_work<std::remove_cvref_t<Works>> && ...)
[[nodiscard]] std::size_t wait_any(const Works&... works) {
  return *detail::wait_for_one(std::array<detail::work_state*, sizeof...(works)>{detail::work_access::state(works)...},
                               nullptr);
}

/// Waits until one of the works is done or the deadline has passed; nullopt where none is done.
template <work_range R>
[[nodiscard]] std::optional<std::size_t> wait_any(R&& works, std::chrono::steady_clock::time_point deadline) {
  return detail::wait_for_one(detail::states_of(works), &deadline);
}
template <work_range R>
[[nodiscard]] std::optional<std::size_t> wait_any(R&& works, std::chrono::nanoseconds timeout) {
  return wait_any(works, detail::time_after(timeout));
}

/// Waits until all works are done. Returns their values in a std::vector, nothing for work<void>. Where some have
/// failed, throws the error of the first of those, after all are done; the others keep their values, and no error is
/// thrown by a later operation. Throws usage_error for a work that was moved from or whose value was taken, and where
/// `wait` would be a deadlock. (MPI's `MPI_Waitall`.)
template <work_range R>
  requires(!std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>)
auto wait_all(R&& works) {
  using value = typename std::ranges::range_value_t<R>::value_type;
  const auto states = detail::states_of(works);
  (void)detail::wait_for_each(states, nullptr);
  detail::rethrow_first(states);
  if constexpr (std::is_void_v<value>) {
    for (work<void>& one : works) {
      one.wait();
    }
  } else {
    std::vector<value> values;
    values.reserve(states.size());
    for (work<value>& one : works) {
      values.push_back(one.wait());
    }
    return values;
  }
}

/// The same for works of any types: `auto [count, text] = wait_all(left, right, sent);`. Returns the values of those
/// that have one in a std::tuple, nothing where all are work<void>.
template <class... Works>
  requires(detail::is_work<std::remove_cvref_t<Works>> && ...)
auto wait_all(Works&&... works) {  // NOLINT(*missing-std-forward): they are waited for where they are
  const std::array<detail::work_state*, sizeof...(works)> states{detail::work_access::state(works)...};
  (void)detail::wait_for_each(states, nullptr);
  detail::rethrow_first(states);
  if constexpr ((std::is_void_v<typename std::remove_cvref_t<Works>::value_type> && ...)) {
    (works.wait(), ...);
  } else {
    return std::tuple_cat(detail::value_in_tuple(works)...);
  }
}

/// Waits until all works are done or the deadline has passed; returns whether all are done. Takes no value and throws
/// no error of a work.
template <work_range R>
[[nodiscard]] bool wait_all(R&& works, std::chrono::steady_clock::time_point deadline) {
  return detail::wait_for_each(detail::states_of(works), &deadline);
}
template <work_range R>
[[nodiscard]] bool wait_all(R&& works, std::chrono::nanoseconds timeout) {
  return wait_all(works, detail::time_after(timeout));
}

}  // namespace hfcomm
