// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <hfcomm/core/std_algorithm.hpp>

namespace hfcomm::engines {

/// The state of a rank's device operations, in memory that the other ranks read. They need it because a GPU that waits
/// for its peers reports nothing. Only its own rank writes it.
struct device_board {
  static constexpr std::size_t text_bytes = 512;
  static constexpr std::size_t most_refused = 16;

  std::atomic<std::uint64_t> begun{0};                 ///< Number of the collective that was begun last, from 1.
  std::atomic<std::uint64_t> refused[most_refused]{};  ///< Numbers of collectives that were refused; 0: none.
  std::atomic<std::uint64_t>
      reason[text_bytes / 8]{};  ///< Of the last refusal. Atomic, because others read it meanwhile.

  /// Records that this rank refuses a collective. The first reason for it stays.
  void record_refusal(std::uint64_t number, std::string_view why) noexcept {
    if (has_refused(number)) {
      return;
    }
    std::array<char, text_bytes> text{};
    why.copy(text.data(), std::min(why.size(), text_bytes - 1));
    for (std::size_t word = 0; word < std::size(reason); ++word) {
      std::uint64_t value = 0;
      std::memcpy(&value, text.data() + word * 8, 8);
      reason[word].store(value, std::memory_order_relaxed);
    }
    // It replaces the oldest one.
    auto* const oldest = std::min_element(std::begin(refused), std::end(refused),
                                          [](const auto& one, const auto& other) { return one.load() < other.load(); });
    oldest->store(number, std::memory_order_release);
  }

  [[nodiscard]] bool has_refused(std::uint64_t number) const noexcept {
    return std::any_of(std::begin(refused), std::end(refused), [&](const auto& one) { return one.load() == number; });
  }

  /// Returns the number of a collective up to `number` that this rank refused and the other did not; 0: none.
  [[nodiscard]] std::uint64_t refusal_until(std::uint64_t number, const device_board& other) const noexcept {
    for (const auto& one : refused) {
      const std::uint64_t mine = one.load(std::memory_order_acquire);
      if (mine != 0 && mine <= number && !other.has_refused(mine)) {
        return mine;
      }
    }
    return 0;
  }

  /// Returns the reason of the last refusal.
  [[nodiscard]] std::string why() const {
    std::string text(text_bytes, '\0');
    for (std::size_t word = 0; word < std::size(reason); ++word) {
      const std::uint64_t value = reason[word].load(std::memory_order_relaxed);
      std::memcpy(text.data() + word * 8, &value, 8);
    }
    return text.c_str();
  }
};

}  // namespace hfcomm::engines
