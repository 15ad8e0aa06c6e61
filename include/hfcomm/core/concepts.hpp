// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>

#include <hfcomm/core/device_span.hpp>
#include <hfcomm/core/element_type.hpp>
#include <hfcomm/core/plain.hpp>

namespace hfcomm {

namespace detail {

/// One value, because a compiler that explains why a type is no buffer would list all that makes a contiguous range.
template <class R>
inline constexpr bool is_contiguous = std::ranges::contiguous_range<R> && std::ranges::sized_range<R>;

/// The type of the elements of contiguous memory: for an array of arrays, such as double[2][3], that of the innermost.
template <class R>
using element_in = std::remove_all_extents_t<std::ranges::range_value_t<R>>;

}  // namespace detail

/// Contiguous host memory of known size whose elements may travel as raw bytes: std::span, std::vector, std::array, ...
/// An array of arrays is the memory of all its elements.
template <class R>
concept buffer = !enable_device_range<std::remove_cvref_t<R>> &&  // for device memory include <hfcomm/nccl.hpp>
                 detail::is_contiguous<R> && plain<detail::element_in<R>>;

/// A buffer that may be written to.
template <class R>
concept writable_buffer = buffer<R> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

/// True if R is taken as the memory of its elements although it owns them: a shared_buffer, or a vector with a
/// shared_allocator. May be specialized for other types that are not serializable.
template <class R>
inline constexpr bool enable_buffer_view = false;

/// A buffer that is taken as memory: one that does not own its elements (std::span), or that `enable_buffer_view`
/// names. Any other owner, such as a vector, is taken as an object, which may change its size.
template <class R>
concept buffer_view =
    buffer<R> && (std::ranges::view<std::remove_cvref_t<R>> || enable_buffer_view<std::remove_cvref_t<R>>);

/// A buffer that reductions can add up.
template <class R>
concept reducible_buffer = buffer<R> && reducible_element<detail::element_in<R>>;

template <class R>
concept writable_reducible_buffer = writable_buffer<R> && reducible_buffer<R>;

/// A buffer that outlives the call, for asynchronous operations. A temporary vector does not.
template <class R>
concept lasting_buffer = buffer<R> && std::ranges::borrowed_range<R>;

/// A callable that combines two values of T into one: (earlier ranks' result, next rank's value).
template <class Op, class T>
concept combines = std::invocable<Op&, T, T> && std::convertible_to<std::invoke_result_t<Op&, T, T>, T>;

namespace detail {

/// Returns the number of a buffer's elements.
template <class R>
std::size_t count_in(R& range) {
  constexpr std::size_t elements_of_one = sizeof(std::ranges::range_value_t<R>) / sizeof(element_in<R>);  // NOLINT
  return static_cast<std::size_t>(std::ranges::size(range)) * elements_of_one;
}

/// Returns a span over a buffer's elements, const where they are.
template <class R>
auto view_of(R& range) {
  using element = std::remove_all_extents_t<std::remove_reference_t<std::ranges::range_reference_t<R>>>;
  return std::span<element>(reinterpret_cast<element*>(std::ranges::data(range)), count_in(range));
}

template <class R>
std::span<const std::byte> bytes_of(const R& range) {
  return std::as_bytes(
      std::span<const std::ranges::range_value_t<R>>(std::ranges::data(range), std::ranges::size(range)));
}

template <class R>
std::span<std::byte> writable_bytes_of(R& range) {
  return std::as_writable_bytes(
      std::span<std::ranges::range_value_t<R>>(std::ranges::data(range), std::ranges::size(range)));
}

}  // namespace detail

}  // namespace hfcomm
