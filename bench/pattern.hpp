// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

/// Calls may use this many ranks and still know the exact result of a sum of 16-bit floats.
inline constexpr int max_processes = 64;

/// The data of one rank in one iteration: whole numbers, different for every rank, iteration and place, so that data
/// from another place or an earlier iteration is noticed, and so small that every type holds every sum over the ranks.
class pattern {
 public:
  pattern(int rank, std::uint64_t iteration) {
    std::uint64_t mixed = (iteration + 1) * 0x9e3779b97f4a7c15ULL + static_cast<std::uint64_t>(rank);
    mixed = (mixed ^ (mixed >> 31)) * 0xbf58476d1ce4e5b9ULL;
    salt_ = static_cast<std::uint32_t>(mixed >> 32);
  }

  /// A number below 2^bits.
  [[nodiscard]] int at(std::size_t index, int bits) const noexcept {
    std::uint32_t hash = (static_cast<std::uint32_t>(index) * 0x9e3779b1U) ^ salt_;
    hash = (hash ^ (hash >> 15)) * 0x85ebca6bU;
    return static_cast<int>(hash >> (32 - bits));
  }

 private:
  std::uint32_t salt_;
};

/// How wide the numbers of `pattern` may be for T to hold a sum over `ranks` of them.
template <class T>
[[nodiscard]] constexpr int pattern_bits(int ranks) {
  const int digits = std::min(std::numeric_limits<T>::digits, 22);
  int bits = 1;
  while (bits < 16 && ((1LL << (bits + 1)) - 1) * ranks <= (1LL << digits)) {
    ++bits;
  }
  return bits;
}

template <class T>
[[nodiscard]] constexpr T to_element(int number) {
  if constexpr (std::integral<T> || std::same_as<T, double>) {
    return static_cast<T>(number);
  } else {
    return T(static_cast<float>(number));
  }
}

/// Rank `rank`'s input.
template <class T>
void fill(std::span<T> data, int rank, int ranks, std::uint64_t iteration) {
  const pattern numbers(rank, iteration);
  const int bits = pattern_bits<T>(ranks);
  for (std::size_t index = 0; index < data.size(); ++index) {
    data[index] = to_element<T>(numbers.at(index, bits));
  }
}

/// How many elements are not rank `rank`'s input, from its element number `first` on.
template <class T>
[[nodiscard]] std::size_t count_wrong(std::span<const T> data, int rank, int ranks, std::uint64_t iteration,
                                      std::size_t first = 0) {
  const pattern numbers(rank, iteration);
  const int bits = pattern_bits<T>(ranks);
  std::size_t wrong = 0;
  for (std::size_t index = 0; index < data.size(); ++index) {
    wrong += data[index] != to_element<T>(numbers.at(first + index, bits)) ? 1 : 0;
  }
  return wrong;
}

/// How many elements are not the sum of all ranks' inputs, from element number `first` on.
template <class T>
[[nodiscard]] std::size_t count_wrong_sums(std::span<const T> data, int ranks, std::uint64_t iteration,
                                           std::size_t first = 0) {
  const int bits = pattern_bits<T>(ranks);
  std::vector<pattern> inputs;
  for (int rank = 0; rank < ranks; ++rank) {
    inputs.emplace_back(rank, iteration);
  }
  std::size_t wrong = 0;
  for (std::size_t index = 0; index < data.size(); ++index) {
    int sum = 0;
    for (const pattern& numbers : inputs) {
      sum += numbers.at(first + index, bits);
    }
    wrong += data[index] != to_element<T>(sum) ? 1 : 0;
  }
  return wrong;
}

/// The same for text.
inline void fill(std::string& text, int rank, std::uint64_t iteration) {
  const pattern numbers(rank, iteration);
  for (std::size_t index = 0; index < text.size(); ++index) {
    text[index] = static_cast<char>(static_cast<unsigned char>(numbers.at(index, 8)));
  }
}

[[nodiscard]] inline std::size_t count_wrong(std::string_view text, std::size_t size, int rank,
                                             std::uint64_t iteration) {
  if (text.size() != size) {
    return std::max<std::size_t>(size, 1);
  }
  const pattern numbers(rank, iteration);
  std::size_t wrong = 0;
  for (std::size_t index = 0; index < size; ++index) {
    wrong += text[index] != static_cast<char>(static_cast<unsigned char>(numbers.at(index, 8))) ? 1 : 0;
  }
  return wrong;
}

}  // namespace bench
