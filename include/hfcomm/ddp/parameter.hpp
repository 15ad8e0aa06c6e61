// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/core/concepts.hpp>
#include <hfcomm/core/device_span.hpp>
#include <hfcomm/engine/reduction/kernel.hpp>

namespace hfcomm {

/// The arrangement of elements in memory, which must be equal on all ranks: the length of each dimension, and how many
/// elements apart its neighbours are. Empty where it is not known; elements are then compared by their number alone.
struct tensor_layout {
  std::vector<std::int64_t> sizes{};
  std::vector<std::int64_t> strides{};  ///< Empty: row by row, without gaps.
};

/// A parameter of a model: a name, its values, and its gradient. Both spans are in host memory, or both on a device;
/// then the host must not dereference them. The model owns the memory of the values, and of the gradient where it gives
/// one. Otherwise distributed_data_parallel has the gradient in the memory in which it is reduced, without a copy.
struct ddp_parameter {
  std::string name;
  element_type type = element_type::none;
  std::span<std::byte> value;
  std::span<std::byte> gradient{};
  bool has_gradient = false;  ///< Whether the model gives `gradient`.
  bool on_device = false;
  detail::reduction_kernel kernel = nullptr;  ///< For `type`, on the host; set by `named_parameter`.
  tensor_layout layout{};

  [[nodiscard]] std::size_t count() const noexcept { return value.size() / size_of(type); }
};

/// State of a model that is not trained but must be equal on all ranks (running statistics): a name and its bytes.
struct ddp_buffer {
  std::string name;
  std::span<std::byte> bytes;
  bool on_device = false;
  tensor_layout layout{};
};

namespace detail {

/// An element type in which gradients can be averaged: of real numbers, of 16 bits or more.
template <class T>
concept gradient_element = is_floating_point(element_type_of<T>) && (sizeof(T) > 1);

/// Returns the bytes of a device range, which the host must not dereference.
template <writable_device_range R>
std::span<std::byte> writable_device_bytes(R&& range) {
  const auto span = as_device_span(range);
  return {reinterpret_cast<std::byte*>(span.data()), span.size_bytes()};
}

}  // namespace detail

/// Returns a parameter in host memory, of float, double, float16 or bfloat16 elements.
/// distributed_data_parallel::gradient gives its gradient.
template <writable_reducible_buffer Values>
  requires detail::gradient_element<std::ranges::range_value_t<Values>>
[[nodiscard]] ddp_parameter named_parameter(std::string name, Values&& value) {
  constexpr element_type type = element_type_of<std::ranges::range_value_t<Values>>;
  ddp_parameter parameter;
  parameter.name = std::move(name);
  parameter.type = type;
  parameter.value = detail::writable_bytes_of(value);
  parameter.kernel = &detail::reduce_elements<type>;
  return parameter;
}

/// The same, where the model holds the gradient, too.
template <writable_reducible_buffer Values, writable_reducible_buffer Gradients>
  requires std::same_as<std::ranges::range_value_t<Values>, std::ranges::range_value_t<Gradients>> &&
           detail::gradient_element<std::ranges::range_value_t<Values>>
[[nodiscard]] ddp_parameter named_parameter(std::string name, Values&& value, Gradients&& gradient) {
  auto parameter = named_parameter(std::move(name), value);
  parameter.gradient = detail::writable_bytes_of(gradient);
  parameter.has_gradient = true;
  return parameter;
}

/// Returns a parameter in a GPU's memory.
template <writable_reducible_device_range Values>
  requires detail::gradient_element<device_value_t<Values>>
[[nodiscard]] ddp_parameter named_parameter(std::string name, Values&& value) {
  ddp_parameter parameter;
  parameter.name = std::move(name);
  parameter.type = element_type_of<device_value_t<Values>>;
  parameter.value = detail::writable_device_bytes(value);
  parameter.on_device = true;
  parameter.kernel = &detail::reduce_elements<element_type_of<device_value_t<Values>>>;
  return parameter;
}

/// The same, where the model holds the gradient, too.
template <writable_reducible_device_range Values, writable_reducible_device_range Gradients>
  requires std::same_as<device_value_t<Values>, device_value_t<Gradients>> &&
           detail::gradient_element<device_value_t<Values>>
[[nodiscard]] ddp_parameter named_parameter(std::string name, Values&& value, Gradients&& gradient) {
  ddp_parameter parameter = named_parameter(std::move(name), value);
  parameter.gradient = detail::writable_device_bytes(gradient);
  parameter.has_gradient = true;
  return parameter;
}

/// Returns a buffer in host memory.
template <writable_buffer Values>
[[nodiscard]] ddp_buffer named_buffer(std::string name, Values&& values) {
  return {std::move(name), detail::writable_bytes_of(values)};
}

/// Returns a buffer in a GPU's memory.
template <writable_device_range Values>
[[nodiscard]] ddp_buffer named_buffer(std::string name, Values&& values) {
  return {std::move(name), detail::writable_device_bytes(values), true};
}

}  // namespace hfcomm
