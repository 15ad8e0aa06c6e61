// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

#include <hfcomm/core/element_type.hpp>

namespace hfcomm {

/// True if R is contiguous device memory of known size: it has `size()`, and a `data()` that returns a pointer or an
/// object whose `get()` does (thrust::device_ptr). May be specialized for any such type; <hfcomm/thrust.hpp> does so
/// for thrust::device_vector.
template <class R>
inline constexpr bool enable_device_range = false;

namespace detail {

template <class R>
constexpr auto device_pointer(R& range) {
  if constexpr (requires { range.data().get(); }) {
    return range.data().get();
  } else {
    return range.data();
  }
}

}  // namespace detail

/// A span of elements in the memory of a GPU: a pointer and a number of elements, not owned. It has no iterators, so
/// that host code cannot read it by mistake.
template <class T>
class device_span {
 public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;

  constexpr device_span() noexcept = default;
  constexpr device_span(T* data, std::size_t size) noexcept : data_(data), size_(size) {}
  template <class U>
    requires std::convertible_to<U (*)[], T (*)[]> && (!std::same_as<T, U>)
  constexpr device_span(device_span<U> other) noexcept : data_(other.data()), size_(other.size()) {}  // adds const

  [[nodiscard]] constexpr T* data() const noexcept { return data_; }
  [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }
  [[nodiscard]] constexpr std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
  [[nodiscard]] constexpr bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] constexpr device_span first(std::size_t count) const noexcept { return {data_, count}; }
  [[nodiscard]] constexpr device_span subspan(std::size_t offset, std::size_t count) const noexcept {
    return {data_ + offset, count};
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

template <class T>
inline constexpr bool enable_device_range<device_span<T>> = true;

/// Contiguous device memory whose elements may travel as raw bytes.
template <class R>
concept device_range = enable_device_range<std::remove_cvref_t<R>> && requires(std::remove_reference_t<R>& range) {
  requires std::is_pointer_v<decltype(detail::device_pointer(range))>;
  requires std::is_trivially_copyable_v<std::remove_pointer_t<decltype(detail::device_pointer(range))>>;
  { range.size() } -> std::convertible_to<std::size_t>;
};

namespace detail {

template <class R>
using device_pointee = std::remove_pointer_t<decltype(device_pointer(std::declval<std::remove_reference_t<R>&>()))>;

}  // namespace detail

/// The type of a device range's elements, without const.
template <device_range R>
using device_value_t = std::remove_cv_t<detail::device_pointee<R>>;

/// A device range that may be written to.
template <class R>
concept writable_device_range = device_range<R> && !std::is_const_v<detail::device_pointee<R>>;

namespace detail {

/// An element type that NCCL may reduce.
[[nodiscard]] constexpr bool is_reduced_on_devices(element_type type) noexcept {
  return type != element_type::none && type != element_type::int16 && type != element_type::uint16 && !is_complex(type);
}

}  // namespace detail

/// A device range that reductions can add up. NCCL has no reductions of 16-bit integers and of complex numbers.
template <class R>
concept reducible_device_range = device_range<R> && detail::is_reduced_on_devices(element_type_of<device_value_t<R>>);

namespace detail {

template <class R>
concept irreducible_device_range = device_range<R> && !reducible_device_range<R>;

}  // namespace detail

template <class R>
concept writable_reducible_device_range = writable_device_range<R> && reducible_device_range<R>;

/// Returns a span over any device range.
template <device_range R>
[[nodiscard]] constexpr auto as_device_span(R&& range) {
  return device_span<detail::device_pointee<R>>(detail::device_pointer(range), static_cast<std::size_t>(range.size()));
}

}  // namespace hfcomm
