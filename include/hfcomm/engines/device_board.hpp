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

  std::atomic<std::uint64_t> begun{0};                 ///< The number of the collective that it began last, from 1.
  std::atomic<std::uint64_t> refused{0};               ///< Of the one that it refused last, having begun it; 0: none.
  std::atomic<std::uint64_t> words[text_bytes / 8]{};  ///< Why. Atomic, because somebody may read what is too old.

  void refuse(std::uint64_t number, std::string_view why) noexcept {
    std::array<char, text_bytes> text{};
    why.copy(text.data(), std::min(why.size(), text_bytes - 1));
    for (std::size_t word = 0; word < std::size(words); ++word) {
      std::uint64_t value = 0;
      std::memcpy(&value, text.data() + word * 8, 8);
      words[word].store(value, std::memory_order_relaxed);
    }
    refused.store(number, std::memory_order_release);
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
