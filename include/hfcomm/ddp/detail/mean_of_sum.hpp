// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include <hfcomm/engine/host_engine.hpp>

/// Averages over some of the ranks, for passes in which the other ranks have no data.
namespace hfcomm::detail {

/// Fills with -0.0, which changes no bit of a sum. (+0.0 would make a sum of -0.0 positive.) It has the sign alone, the
/// highest bit of an element's last byte.
inline void fill_with_negative_zeros(element_type type, std::span<std::byte> data) {
  const std::size_t width = size_of(type);
  std::ranges::fill(data, std::byte{0});
  for (std::size_t last = width - 1; last < data.size(); last += width) {
    data[last] = std::byte{0x80};
  }
}

template <class T>
void divide_elements(std::span<std::byte> data, T divisor) {
  for (std::size_t offset = 0; offset + sizeof(T) <= data.size(); offset += sizeof(T)) {
    T value;
    std::memcpy(&value, data.data() + offset, sizeof(T));
    value /= divisor;
    std::memcpy(data.data() + offset, &value, sizeof(T));
  }
}

/// Averages 16-bit floating-point elements as the average of all ranks does: summed and divided in float, rounded once.
/// The sum may be too large for 16 bits. Converts part by part in `wide`.
template <class T>
void mean_of_narrow_sum(host_engine& engine, operation call, std::span<std::byte> data, std::span<float> wide,
                        float divisor) {
  const std::size_t total = data.size() / sizeof(T);
  std::size_t begin = 0;
  do {
    const auto part = wide.first(std::min(total - begin, wide.size()));
    std::byte* narrow = data.data() + begin * sizeof(T);
    for (std::size_t i = 0; i < part.size(); ++i) {
      T value;
      std::memcpy(&value, narrow + i * sizeof(T), sizeof(T));
      part[i] = static_cast<float>(value);
    }
    call.element = element_type::float32;
    call.kernel = &reduce_elements<element_type::float32>;
    call.bytes = part.size_bytes();
    const auto bytes = std::as_writable_bytes(part);
    engine.reduce(call, bytes, bytes);
    for (std::size_t i = 0; i < part.size(); ++i) {
      const T value(part[i] / divisor);
      std::memcpy(narrow + i * sizeof(T), &value, sizeof(T));
    }
    begin += part.size();
  } while (begin < total);
}

/// Elements of the memory in which `mean_of_sum` converts 16-bit ones.
inline constexpr std::size_t wide_sum_elements = std::size_t{1} << 16;

/// Sums the elements of all ranks (see reduce_op) and divides the sum once by `divisor`. Gives the same bits on every
/// rank. 16-bit elements need the memory `wide`.
inline void mean_of_sum(host_engine& engine, operation call, std::span<std::byte> data, std::span<float> wide,
                        int divisor) {
  if (divisor == engine.size()) {
    call.op = reduce_op::average;
    engine.reduce(call, data, data);
    return;
  }
  call.op = reduce_op::sum;
  switch (call.element) {
    case element_type::float16:
      mean_of_narrow_sum<float16>(engine, call, data, wide, static_cast<float>(divisor));
      break;
    case element_type::bfloat16:
      mean_of_narrow_sum<bfloat16>(engine, call, data, wide, static_cast<float>(divisor));
      break;
    case element_type::float64:
      engine.reduce(call, data, data);
      divide_elements(data, static_cast<double>(divisor));
      break;
    default:
      engine.reduce(call, data, data);
      divide_elements(data, static_cast<float>(divisor));
      break;
  }
}

}  // namespace hfcomm::detail
