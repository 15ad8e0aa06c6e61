// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/comm.hpp>

namespace hfcomm::test {

inline std::size_t as_index(int number) { return static_cast<std::size_t>(number); }

/// A hash of everything that a rank has received.
class digest {
 public:
  template <plain T>
  void add(std::span<const T> values) {
    auto bytes = std::as_bytes(values);
    add_word(bytes.size());
    for (; !bytes.empty(); bytes = bytes.subspan(std::min(bytes.size(), sizeof(std::uint64_t)))) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data(), std::min(bytes.size(), sizeof(word)));
      add_word(word);
    }
  }
  template <plain T>
  void add(const std::vector<T>& values) {
    add(std::span(values));
  }
  void add(const std::string& text) { add(std::span(text)); }
  void add(const std::vector<std::string>& texts) {
    for (const auto& text : texts) {
      add(text);
    }
  }
  void add(double value) { add(std::span<const double>(&value, 1)); }
  [[nodiscard]] std::uint64_t value() const { return hash_; }

 private:
  void add_word(std::uint64_t word) {
    hash_ = (hash_ ^ word) * 0x9e3779b97f4a7c15ULL;
    hash_ ^= hash_ >> 32;
  }

  std::uint64_t hash_ = 0xcbf29ce484222325ULL;
};

/// Numbers whose sum depends on the order in which they are added.
template <class T>
std::vector<T> numbers(std::size_t count, int seed) {
  std::vector<T> result(count);
  std::uint32_t state = 12345U + 977U * static_cast<std::uint32_t>(seed);
  for (T& value : result) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<T>(static_cast<float>(state >> 8) / static_cast<float>(1 + state % 1000) - 100.0F);
  }
  return result;
}

/// Returns the k-th letter `length` times, and k.
inline std::string text_of(int number, std::size_t length) {
  return std::string(length, static_cast<char>('a' + number % 26)) + std::to_string(number);
}

}  // namespace hfcomm::test
