// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <vector>

#include <hfcomm/engine/shared_memory/memory.hpp>

using hfcomm::engines::group_placement;

TEST_CASE("group_placement: machines have whole subtrees of a reduction's order, or not") {
  const auto has_subtrees = [](const std::vector<int>& machines) { return group_placement(machines).has_subtrees(); };
  CHECK(has_subtrees({0, 1, 2}));
  CHECK(has_subtrees({7, 7, 3, 3}));  // in any numbering
  CHECK(has_subtrees({0, 0, 1, 1, 2}));
  CHECK(has_subtrees({0, 0, 0, 0, 1, 1, 1}));
  CHECK_FALSE(has_subtrees({0, 0, 0, 1}));
  CHECK_FALSE(has_subtrees({0, 0, 0, 1, 1, 1}));  // 3 is no power of two
  CHECK_FALSE(has_subtrees({0, 1, 1}));           // more on the last one
  CHECK_FALSE(has_subtrees({0, 0, 1, 2, 2}));     // fewer in the middle
  CHECK_FALSE(has_subtrees({0, 1, 0, 1}));
}
