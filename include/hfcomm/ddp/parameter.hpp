// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include <hfcomm/concepts.hpp>

namespace hfcomm {

/// One parameter of a model: a name, its values, and where its gradient is written. Views: the memory stays the
/// model's.
struct ddp_parameter {
  std::string name;
  element_type type = element_type::none;
  std::span<std::byte> value;
  std::span<std::byte> gradient;

  [[nodiscard]] std::size_t count() const noexcept { return value.size() / size_of(type); }
};

/// State that is not trained but must be equal on all ranks (running statistics): a name and its bytes.
struct ddp_buffer {
  std::string name;
  std::span<std::byte> bytes;
};

/// Names a parameter of float, double, float16 or bfloat16 elements.
template <writable_reducible_buffer Values, writable_reducible_buffer Gradients>
  requires std::same_as<std::ranges::range_value_t<Values>, std::ranges::range_value_t<Gradients>> &&
           (is_floating_point(element_type_of<std::ranges::range_value_t<Values>>) &&
            sizeof(std::ranges::range_value_t<Values>) > 1)
[[nodiscard]] ddp_parameter named_parameter(std::string name, Values&& value, Gradients&& gradient) {
  return {std::move(name), element_type_of<std::ranges::range_value_t<Values>>, detail::writable_bytes_of(value),
          detail::writable_bytes_of(gradient)};
}

template <writable_buffer Values>
[[nodiscard]] ddp_buffer named_buffer(std::string name, Values&& values) {
  return {std::move(name), detail::writable_bytes_of(values)};
}

}  // namespace hfcomm
