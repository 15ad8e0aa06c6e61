// SPDX-License-Identifier: MIT
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <exception>
#include <ranges>
#include <source_location>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <typeinfo>
#include <utility>
#include <vector>

#include <hfcomm/comm.hpp>
#include <hfcomm/testing.hpp>

#include "../sanitizers.hpp"

/// Helpers of the tests with ranks as threads.
namespace multi_rank {

using hfcomm::function_ref;
using hfcomm::process_group;
using hfcomm::testing::run_ranks;

/// A sanitizer needs fewer. The thread sanitizer looks for races between two ranks, whichever they are; the address
/// sanitizer for wrong bounds: alone, where parts do not divide evenly, and where they do.
inline constexpr auto rank_counts = [] {
  if constexpr (under_thread_sanitizer) {
    return std::array{3, 4};
  } else if constexpr (under_address_sanitizer) {
    return std::array{1, 3, 8};
  } else {
    return std::array{1, 2, 3, 4, 8};
  }
}();

/// The rank counts that are `least` or more. Without any, a test would pass without having run.
inline auto rank_counts_from(int least) {
  if (least > rank_counts.back()) {
    throw std::logic_error("no test runs with " + std::to_string(least) + " ranks or more");
  }
  return rank_counts | std::views::filter([least](int ranks) { return ranks >= least; });
}

constexpr std::size_t as_index(int rank) { return static_cast<std::size_t>(rank); }

/// `for (const std::size_t count : each_of(0, 1, 3))`: a list in braces would be of int.
template <std::integral... Numbers>
constexpr std::array<std::size_t, sizeof...(Numbers)> each_of(Numbers... numbers) {
  return {static_cast<std::size_t>(numbers)...};
}

/// Runs `rank_main(world)` on `ranks` ranks; a failed check says which rank failed, and `note`.
/// No exception may pass through INFO on several threads: doctest would log it without a lock.
inline void run_noted(int ranks, const std::string& note, function_ref<void(const process_group&)> rank_main) {
  run_ranks(ranks, [&](const process_group& world) {
    std::exception_ptr problem;
    {
      INFO("on rank ", world.rank(), " of ", world.size(), " ", note);
      try {
        rank_main(world);
      } catch (...) {
        problem = std::current_exception();
      }
    }
    if (problem) {
      std::rethrow_exception(problem);
    }
  });
}

/// Runs `rank_main(world)` with each number of ranks from `least` on.
inline void at_every_size(function_ref<void(const process_group&)> rank_main, int least = 1) {
  for (const int ranks : rank_counts_from(least)) {
    INFO("with ", ranks, " ranks");
    run_noted(ranks, {}, rank_main);
  }
}

/// Whether two ranges hold the same bits, NaNs and all.
template <std::ranges::contiguous_range Left, std::ranges::contiguous_range Right>
bool same_bits(const Left& left, const Right& right) {
  const auto one = std::as_bytes(std::span(left));
  const auto other = std::as_bytes(std::span(right));
  return one.size() == other.size() && (one.empty() || std::memcmp(one.data(), other.data(), one.size()) == 0);
}

/// Throws when it is saved or loaded, as its members say.
struct failing_object {
  bool fails_to_save = false;
  bool fails_to_load = false;
  std::string text = {};

  template <class Archive>
  void save(Archive& archive) const {
    if (fails_to_save) {
      throw std::domain_error("cannot save this");
    }
    archive(fails_to_load, text);
  }
  template <class Archive>
  void load(Archive& archive) {
    archive(fails_to_load, text);
    if (fails_to_load) {
      throw std::domain_error("cannot load this");
    }
  }
};

/// The error that `call` throws; it must be an `Error` and nothing derived from it.
template <class Error, class Call>
Error error_of(Call&& call) {
  try {
    std::forward<Call>(call)();
  } catch (const Error& problem) {
    CHECK(typeid(problem) == typeid(Error));
    return problem;
  }
  throw std::logic_error(std::string("nothing was thrown where this was expected: ") + typeid(Error).name());
}

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// Checks that a text has a part. A function, where doctest's CHECK_MESSAGE would make a class for each use.
inline void check_contains(std::string_view text, std::string_view part, const char* file, int line) {
  if (!contains(text, part)) {
    ADD_FAIL_CHECK_AT(file, line, "no '", part, "' in: ", text);
  }
}

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): the check is to name the caller's line.
#define CHECK_CONTAINS(text, part) ::multi_rank::check_contains(text, part, __FILE__, __LINE__)

/// Hands a group to a call and remembers the line that made it: `all_gather(1, note(world))`.
class line_note {
 public:
  const process_group& operator()(const process_group& group,
                                  std::source_location where = std::source_location::current()) {
    text_ = hfcomm::detail::describe(where);
    return group;
  }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
};

/// A text of `size` characters that differs from rank to rank.
inline std::string text_of(int rank, std::size_t size) {
  std::string text(size, ' ');
  char* const place = text.data();  // without optimisation and under sanitizers that is three times as fast
  for (std::size_t i = 0; i < size; ++i) {
    place[i] = static_cast<char>('!' + (i * 7 + i / 251 + as_index(rank) * 13) % 90);
  }
  return text;
}

inline void check_usable(const process_group& group) {
  CHECK_FALSE(group.broken());
  const auto everyone = hfcomm::all_gather(group.rank(), group);
  REQUIRE(everyone.size() == as_index(group.size()));
  for (int rank = 0; rank < group.size(); ++rank) {
    CHECK(everyone[as_index(rank)] == rank);
  }
}

/// Checks that all ranks have the same value.
template <class T>
void check_same_everywhere(const T& value, const process_group& group) {
  const auto all = hfcomm::all_gather(value, group);
  for (const auto& other : all) {
    CHECK((other == value));
  }
}

/// Waits until another rank has made `condition` true by other means than the group.
template <class Condition>
void wait_until(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) {
      throw std::runtime_error("what the test waits for does not happen");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace multi_rank
