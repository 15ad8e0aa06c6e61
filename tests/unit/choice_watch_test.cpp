// SPDX-License-Identifier: MIT
#include <cstddef>

#include <doctest/doctest.h>

#include <hfcomm/engine/shared_memory/ways.hpp>

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
    watch.count(length);
    ++number;
  }
  watch.count(length);
  return number;
}

TEST_CASE("choice_watch: one operation for each 500 us is measured, but no fewer than one of 64") {
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
  CHECK_FALSE(unknown.add_cost(usual));
  CHECK(operations_until_due(unknown) == 48);  // until the 64th
}

TEST_CASE("choice_watch: all ways are tried again after three operations in a row that took more than twice as long") {
  choice_watch watch(usual);
  CHECK_FALSE(watch.add_cost(2 * usual));
  CHECK_FALSE(watch.add_cost(2 * usual));
  CHECK_FALSE(watch.add_cost(2 * usual));
  CHECK_FALSE(watch.add_cost(2 * usual + 2));
  CHECK_FALSE(watch.add_cost(1000 * usual));
  CHECK_FALSE(watch.add_cost(usual));
  CHECK_FALSE(watch.add_cost(3 * usual));
  CHECK_FALSE(watch.add_cost(3 * usual));
  CHECK_FALSE(watch.add_cost(unknown_cost));  // a rank did not measure it
  CHECK(watch.add_cost(3 * usual));
}

TEST_CASE("choice_watch: what is usual is learned where nobody has measured it") {
  choice_watch watch;
  CHECK_FALSE(watch.add_cost(unknown_cost));
  CHECK_FALSE(watch.add_cost(100 * usual));  // held up by something else
  CHECK_FALSE(watch.add_cost(usual));
  CHECK_FALSE(watch.add_cost(3 * usual));
  CHECK_FALSE(watch.add_cost(3 * usual));
  CHECK(watch.add_cost(3 * usual));
}

TEST_CASE("choice_watch: all ways are tried again after a second of operations, but at least 500") {
  const auto operations_until_over = [](std::size_t length) {
    choice_watch watch(10'000);
    int number = 0;
    while (!watch.add_cost(10'000)) {
      watch.count(length);
      ++number;
    }
    return number;
  };
  CHECK(operations_until_over(100'000) == 1001);  // of 1 ms
  CHECK(operations_until_over(10'000'000) == 500);
  CHECK_FALSE(choice_watch().add_cost(unknown_cost));
}

}  // namespace choice_watch_tests

}  // namespace
