// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <vector>

#include <hfcomm/serialization/encoding.hpp>

/// Objects as bytes, and back.
namespace encodings {

template <class T>
std::vector<std::byte> encoded(const T& value) {
  std::vector<std::byte> bytes;
  hfcomm::encode(value, bytes);
  return bytes;
}

template <class T>
T round_trip(const T& value) {
  return hfcomm::decode<T>(encoded(value));
}

}  // namespace encodings
