// SPDX-License-Identifier: MIT
#include <cstddef>

#include <doctest/doctest.h>

#include <hfcomm/engine/shared_memory/choice_watch.hpp>

namespace {

namespace choice_watch_tests {

using namespace hfcomm::engines;

constexpr std::size_t bytes = 65'536;
constexpr byte_cost usual = 100;  // 6.5 us
static_assert(nanoseconds_of(usual, bytes) == 6'553);

/// Counts operations until one of them is due. Returns how many these were, with that one.
int operations_until_due(choice_watch& watch, std::size_t length = bytes) {
  int number = 1;
  while (!watch.is_due(length)) {
    watch.count();
    ++number;
  }
  watch.count();
  return number;
}

TEST_CASE("choice_watch: an operation is measured every 500 us, every one at most, and one of 64 at least") {
  choice_watch quick(usual);
  CHECK(operations_until_due(quick) == 64);
  CHECK(operations_until_due(quick) == 64);
  choice_watch middling(1'000);  // 65 us
  CHECK(operations_until_due(middling) == 7);
  choice_watch slow(10'000);  // 655 us
  CHECK(operations_until_due(slow) == 1);
  CHECK(operations_until_due(slow) == 1);
  choice_watch unknown;
  CHECK(operations_until_due(unknown) == 16);
  CHECK_FALSE(unknown.is_over(usual, bytes));
  CHECK(operations_until_due(unknown) == 48);  // until the 64th
}

TEST_CASE("choice_watch: a way is over when three operations in a row have taken more than twice as long") {
  choice_watch watch(usual);
  CHECK_FALSE(watch.is_over(2 * usual, bytes));
  CHECK_FALSE(watch.is_over(2 * usual, bytes));
  CHECK_FALSE(watch.is_over(2 * usual, bytes));
  CHECK_FALSE(watch.is_over(2 * usual + 2, bytes));
  CHECK_FALSE(watch.is_over(1000 * usual, bytes));
  CHECK_FALSE(watch.is_over(usual, bytes));
  CHECK_FALSE(watch.is_over(3 * usual, bytes));
  CHECK_FALSE(watch.is_over(3 * usual, bytes));
  CHECK_FALSE(watch.is_over(unknown_cost, bytes));  // a rank did not measure it
  CHECK_FALSE(watch.is_over(3 * usual, bytes));
  CHECK_FALSE(watch.is_over(3 * usual, bytes));
  CHECK(watch.is_over(3 * usual, bytes));
}

TEST_CASE("choice_watch: what is usual is learned where nobody has measured it") {
  choice_watch watch;
  CHECK_FALSE(watch.is_over(unknown_cost, bytes));
  CHECK_FALSE(watch.is_over(5 * usual, bytes));
  CHECK_FALSE(watch.is_over(usual, bytes));
  CHECK_FALSE(watch.is_over(11 * usual, bytes));
  CHECK_FALSE(watch.is_over(11 * usual, bytes));
  CHECK(watch.is_over(11 * usual, bytes));
}

TEST_CASE("choice_watch: a way is over when its operations have taken a second") {
  choice_watch watch(10'000);
  constexpr std::size_t length = 1'000'000;  // 10 ms
  for (int number = 0; number < 100; ++number) {
    watch.count();
  }
  CHECK_FALSE(watch.is_over(10'000, length));
  watch.count();
  CHECK(watch.is_over(10'000, length));
  CHECK_FALSE(choice_watch().is_over(unknown_cost, length));
}

}  // namespace choice_watch_tests

}  // namespace
