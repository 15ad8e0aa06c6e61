// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace hfcomm::engines {

/// What a rank shows the others of its device operations, which themselves tell nothing: a GPU waits for its peers
/// without a word. Written by its rank only.
struct device_board {
  static constexpr std::size_t text_bytes = 512;
  static constexpr std::size_t remembered = 16;

  std::atomic<std::uint64_t> begun{0};                 ///< The number of the collective that it began last, from 1.
  std::atomic<std::uint64_t> refused[remembered]{};    ///< Of those that it refused, having begun them; 0: none.
  std::atomic<std::uint64_t> words[text_bytes / 8]{};  ///< Why the last one. Atomic, because a reader may be late.

  /// The first reason stays.
  void refuse(std::uint64_t number, std::string_view reason) noexcept {
    if (has_refused(number)) {
      return;
    }
    std::array<char, text_bytes> text{};
    reason.copy(text.data(), std::min(reason.size(), text_bytes - 1));
    for (std::size_t word = 0; word < std::size(words); ++word) {
      std::uint64_t value = 0;
      std::memcpy(&value, text.data() + word * 8, 8);
      words[word].store(value, std::memory_order_relaxed);
    }
    // In place of the oldest.
    auto* const place = std::min_element(std::begin(refused), std::end(refused),
                                         [](const auto& one, const auto& other) { return one.load() < other.load(); });
    place->store(number, std::memory_order_release);
  }

  [[nodiscard]] bool has_refused(std::uint64_t number) const noexcept {
    return std::any_of(std::begin(refused), std::end(refused), [&](const auto& one) { return one.load() == number; });
  }

  /// The number of an operation, up to this one, that this rank refused and the other did not; 0: none.
  [[nodiscard]] std::uint64_t refusal_until(std::uint64_t number, const device_board& other) const noexcept {
    for (const auto& one : refused) {
      const std::uint64_t mine = one.load(std::memory_order_acquire);
      if (mine != 0 && mine <= number && !other.has_refused(mine)) {
        return mine;
      }
    }
    return 0;
  }

  [[nodiscard]] std::string why() const {
    std::string text(text_bytes, '\0');
    for (std::size_t word = 0; word < std::size(words); ++word) {
      const std::uint64_t value = words[word].load(std::memory_order_relaxed);
      std::memcpy(text.data() + word * 8, &value, 8);
    }
    return text.c_str();
  }
};

}  // namespace hfcomm::engines
