// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>

#include <hfcomm/core/concepts.hpp>
#include <hfcomm/group/detail/checked_call.hpp>

/// Argument checks of the operations on elements in memory, for their host and their device forms alike. All of them
/// throw usage_error and tell the other ranks. They compare addresses and numbers, and read no element.
namespace hfcomm::detail {

/// Elements in host or device memory that may be read.
struct const_elements {
  const std::byte* data = nullptr;
  std::size_t count = 0;
  std::size_t width = 1;  ///< The bytes of one element.

  /// Valid after `require_memory`.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {data, count * width}; }
};

/// Elements in host or device memory that may be written.
struct elements {
  std::byte* data = nullptr;
  std::size_t count = 0;
  std::size_t width = 1;  ///< The bytes of one element.

  operator const_elements() const noexcept { return {data, count, width}; }  // NOLINT(*explicit*): adds const
  /// Valid after `require_memory`.
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data, count * width}; }
};

template <buffer R>
[[nodiscard]] const_elements elements_of(const R& range) {
  return {reinterpret_cast<const std::byte*>(std::ranges::data(range)),
          static_cast<std::size_t>(std::ranges::size(range)), sizeof(std::ranges::range_value_t<R>)};
}
template <writable_buffer R>
[[nodiscard]] elements writable_elements_of(R& range) {
  return {reinterpret_cast<std::byte*>(std::ranges::data(range)), static_cast<std::size_t>(std::ranges::size(range)),
          sizeof(std::ranges::range_value_t<R>)};
}

/// Returns whether these elements can be in memory at this address.
[[nodiscard]] bool is_there(const const_elements& range) noexcept;
/// Describes why the elements of `range` cannot be in memory.
[[nodiscard]] std::string memory_problem(const const_elements& range);
void require_memory(checked_call& running, const const_elements& range);

template <buffer R>
[[nodiscard]] bool is_there(const R& range) {
  return is_there(elements_of(range));
}
template <buffer R>
[[nodiscard]] std::string memory_problem(const R& range) {
  return memory_problem(elements_of(range));
}
template <buffer R>
void require_memory(checked_call& running, const R& range) {
  require_memory(running, elements_of(range));
}

/// Returns whether `total` equals `part` times `ranks`. Calculates no product, which could wrap around.
[[nodiscard]] constexpr bool is_one_for_each(std::size_t total, std::size_t part, int ranks) noexcept {
  const auto count = static_cast<std::size_t>(ranks);
  return total / count == part && total % count == 0;
}

/// Returns whether two pieces of memory share a byte.
[[nodiscard]] bool overlap(std::span<const std::byte> one, std::span<const std::byte> other) noexcept;

/// Requires that `out` is `allowed`, a part of the input, or overlaps no part of the input.
void require_apart(checked_call& running, std::span<const std::byte> in, std::span<const std::byte> out,
                   std::span<const std::byte> allowed = {});

/// Returns the number of elements of all parts. Throws where there is not one count for each rank, or the sum
/// overflows. `what` names the buffer in the error text.
std::size_t require_counts(checked_call& running, std::span<const std::size_t> counts, const char* what);
/// Requires that `length` is the sum of the counts.
void require_sum(checked_call& running, std::span<const std::size_t> counts, std::size_t length, const char* what);
/// Requires that a rank receives from itself as many elements as it sends to itself.
void require_own(checked_call& running, std::size_t sent, std::size_t received);

/// The check of operations on objects with a root.
inline constexpr auto check_root = [](checked_call& running) { running.require_root(); };

// One check for each operation. With `counts`, rank r's part has counts[r] elements; otherwise all parts are equally
// long. `running.call()` has the root and the reduction.

void check_all_gather(checked_call& running, const const_elements& in, const const_elements& out);
void check_all_gather(checked_call& running, const const_elements& in, const const_elements& out,
                      std::span<const std::size_t> counts);
/// Requires elements of which each gives one element of the output, which may be the input itself.
void check_elementwise(checked_call& running, const const_elements& in, const const_elements& out);
void check_all_reduce(checked_call& running, const const_elements& in, const const_elements& out);
void check_all_to_all(checked_call& running, const const_elements& in, const const_elements& out);
void check_all_to_all(checked_call& running, const const_elements& in, std::span<const std::size_t> in_counts);
void check_all_to_all(checked_call& running, const const_elements& in, std::span<const std::size_t> in_counts,
                      const const_elements& out, std::span<const std::size_t> out_counts);
void check_broadcast(checked_call& running, const const_elements& data);
/// Requires readable elements, and a root where the operation has one that receives.
void check_contribution(checked_call& running, const const_elements& in);
/// Ignores `out` and `counts` where `rank()` is not the root.
void check_gather(checked_call& running, const const_elements& in, const const_elements& out);
void check_gather(checked_call& running, const const_elements& in, const const_elements& out,
                  std::span<const std::size_t> counts);
/// Ignores `out` where `rank()` is not the root.
void check_reduce(checked_call& running, const const_elements& in, const const_elements& out);
void check_reduce_scatter(checked_call& running, const const_elements& in, const const_elements& out);
void check_reduce_scatter(checked_call& running, const const_elements& in, const const_elements& out,
                          std::span<const std::size_t> counts);
/// Ignores `in` and `counts` where `rank()` is not the root.
void check_scatter(checked_call& running, const const_elements& in, const const_elements& out);
void check_scatter(checked_call& running, const const_elements& in, const const_elements& out,
                   std::span<const std::size_t> counts);
/// Requires a list with one object for each rank.
void check_all_to_all_list(checked_call& running, std::size_t length);
/// Requires a list with one object for each rank on the root, and an empty one elsewhere.
void check_scatter_list(checked_call& running, std::size_t length);

/// Returns a check of `in` and `out` for `start_checked`.
template <buffer In, buffer Out>
auto bind_check(void (*check)(checked_call&, const const_elements&, const const_elements&), const In& in,
                const Out& out) {
  return [=, in = elements_of(in), out = elements_of(out)](checked_call& running) { check(running, in, out); };
}
/// The same with counts, which must stay.
template <buffer In, buffer Out>
auto bind_check(void (*check)(checked_call&, const const_elements&, const const_elements&,
                              std::span<const std::size_t>),
                const In& in, const Out& out, std::span<const std::size_t> counts) {
  return [=, in = elements_of(in), out = elements_of(out)](checked_call& running) { check(running, in, out, counts); };
}
/// The same for an operation on one buffer.
template <buffer R>
auto bind_check(void (*check)(checked_call&, const const_elements&), const R& data) {
  return [=, data = elements_of(data)](checked_call& running) { check(running, data); };
}

}  // namespace hfcomm::detail
