// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <hfcomm/core/concepts.hpp>
#include <hfcomm/core/device_span.hpp>
#include <hfcomm/core/reduce_op.hpp>
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

/// Contiguous elements in host or device memory.
template <class R>
concept memory = buffer<R> || device_range<R>;

template <class R>
struct value_in {};
template <buffer R>
struct value_in<R> : std::type_identity<element_in<R>> {};
template <device_range R>
struct value_in<R> : std::type_identity<device_value_t<R>> {};

/// The type of the elements in memory, and the parameter for their reduction.
template <class R>
using value_of = typename value_in<R>::type;
template <class R>
using op_on = reduction<value_of<R>>;

/// Memory of the host or of a device, as In is, for a result of elements of In.
template <class Out, class In>
concept output_for = std::same_as<value_of<Out>, value_of<In>> &&
                     ((buffer<In> && writable_buffer<Out>) || (device_range<In> && writable_device_range<Out>));

/// The same for asynchronous operations of the host.
template <class Out, class In>
concept lasting_output_for = lasting_buffer<Out> && output_for<Out, In>;

template <class R>
concept lasting_reducible_buffer = lasting_buffer<R> && reducible_buffer<R>;

template <buffer R>
[[nodiscard]] const_elements elements_of(const R& range) {
  return {reinterpret_cast<const std::byte*>(std::ranges::data(range)), count_in(range), sizeof(value_of<R>)};
}
template <writable_buffer R>
[[nodiscard]] elements writable_elements_of(R& range) {
  return {reinterpret_cast<std::byte*>(std::ranges::data(range)), count_in(range), sizeof(value_of<R>)};
}
template <device_range R>
[[nodiscard]] const_elements elements_of(const R& range) {
  const auto span = as_device_span(range);
  return {reinterpret_cast<const std::byte*>(span.data()), span.size(), sizeof(value_of<R>)};
}
template <writable_device_range R>
[[nodiscard]] elements writable_elements_of(R&& range) {
  const auto span = as_device_span(range);
  return {reinterpret_cast<std::byte*>(span.data()), span.size(), sizeof(value_of<R>)};
}

/// Returns the text about a reduction that elements of this type do not have.
[[nodiscard, gnu::cold]] std::string undefined_reduction(reduce_kind op, std::string_view elements);
/// Requires that the factor of a premultiplied sum is a number.
void require_factor(checked_call& running);
/// Requires that elements of this type have the call's reduction, and a factor as above.
void require_valid(checked_call& running, element_type elements);
inline void require_valid(checked_call& running) { require_valid(running, running.call().element); }

/// Returns whether these elements can be in memory at this address.
[[nodiscard]] bool is_there(const const_elements& range) noexcept;
/// Describes why the elements of `range` cannot be in memory.
[[nodiscard]] std::string memory_problem(const const_elements& range);
void require_memory(checked_call& running, const const_elements& range);

/// Returns whether two pieces of memory share a byte.
[[nodiscard]] bool overlap(std::span<const std::byte> one, std::span<const std::byte> other) noexcept;

/// Requires that `out` is `allowed`, a part of the input, or overlaps no part of the input.
void require_apart(checked_call& running, std::span<const std::byte> in, std::span<const std::byte> out,
                   std::span<const std::byte> allowed = {});

/// Requires one count for each rank, whose sum is `length`. `what` names the buffer in the error text.
void require_sum(checked_call& running, std::span<const std::size_t> counts, std::size_t length, const char* what);
/// Requires that a rank receives from itself as many elements as it sends to itself.
void require_own(checked_call& running, std::size_t sent, std::size_t received);

// The checks of operations on objects. The objects themselves are not looked at.
inline constexpr auto check_root = [](checked_call& running, const auto&...) { running.require_root(); };
inline constexpr auto check_root_if_any = [](checked_call& running, const auto&...) {
  if (running.call().pattern == movement::to_root) {
    running.require_root();
  }
};

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
void check_all_to_all_objects(checked_call& running, std::size_t length);
/// Requires a list with one object for each rank on the root, and an empty one elsewhere.
void check_scatter_objects(checked_call& running, std::size_t length);
/// One of these two as a check of a list.
template <void (*check)(checked_call& running, std::size_t length)>
inline constexpr auto check_length = [](checked_call& running, const auto& list) { check(running, list.size()); };

}  // namespace hfcomm::detail
