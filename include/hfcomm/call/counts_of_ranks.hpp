// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <hfcomm/core/std_template.hpp>

namespace hfcomm::detail {

template <class T>
concept count_type =
    std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char> && !std::same_as<T, wchar_t> &&
    !std::same_as<T, char8_t> && !std::same_as<T, char16_t> && !std::same_as<T, char32_t>;

/// Numbers of elements, one for each rank, as an argument of a call: any range of integers, or integers in braces. A
/// contiguous range of std::size_t is referred to, as by a span; other numbers are copied. A negative one is refused by
/// the call.
class counts_of_ranks {
 public:
  template <class R>
    requires std::ranges::input_range<R> && count_type<std::ranges::range_value_t<R>>
  counts_of_ranks(R&& counts) {  // NOLINT(*explicit*, *forward*): an argument of a call; read, not kept
    if constexpr (std::convertible_to<R&, std::span<const std::size_t>>) {
      counts_ = counts;
    } else {
      for (const auto count : counts) {
        copied_.push_back(static_cast<std::size_t>(count));
      }
    }
  }
  template <count_type T>
  counts_of_ranks(std::initializer_list<T> counts) : copied_(counts.begin(), counts.end()) {}

  operator std::span<const std::size_t>() const noexcept {  // NOLINT(*explicit*): it is used as one
    return copied_.empty() ? counts_ : std::span<const std::size_t>(copied_);
  }

  /// Returns the numbers, for an operation that outlives the call.
  [[nodiscard]] std::vector<std::size_t> take() && {
    return copied_.empty() ? std::vector<std::size_t>(counts_.begin(), counts_.end()) : std::move(copied_);
  }

 private:
  std::vector<std::size_t> copied_;
  std::span<const std::size_t> counts_;
};

}  // namespace hfcomm::detail
