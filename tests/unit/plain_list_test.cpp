// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include <hfcomm/core/plain_list.hpp>

using hfcomm::detail::plain_list;

namespace {

std::vector<int> copy_of(const plain_list<int>& list) { return {list.begin(), list.end()}; }

}  // namespace

TEST_CASE("plain_list: elements that are pushed stay in order while it grows") {
  plain_list<int> list;
  std::vector<int> expected;
  for (int value = 0; value < 100; ++value) {
    list.push_back(value);
    expected.push_back(value);
  }
  CHECK(copy_of(list) == expected);
  CHECK(list.back() == 99);
}

TEST_CASE("plain_list: an element of its own can be pushed when it is full") {
  plain_list<int> list;
  list.push_back(7);
  for (int count = 0; count < 100; ++count) {
    list.push_back(list[0]);
  }
  CHECK(copy_of(list) == std::vector<int>(101, 7));
}

TEST_CASE("plain_list: insert and erase move what is behind") {
  plain_list<int> list;
  for (const int value : {1, 3, 4}) {
    list.push_back(value);
  }
  list.insert(0, 0);
  list.insert(2, 2);
  CHECK(copy_of(list) == std::vector<int>{0, 1, 2, 3, 4});
  list.erase(4);
  list.erase(0);
  CHECK(copy_of(list) == std::vector<int>{1, 2, 3});
}

TEST_CASE("plain_list: resize adds values of the element's type, and cuts") {
  struct element {
    int number = 5;
  };
  plain_list<element> list(2);
  list[0].number = 1;
  list.resize(3);
  CHECK(list.size() == 3);
  CHECK(list[0].number == 1);
  CHECK(list[2].number == 5);
  list.resize(1);
  CHECK(list.size() == 1);
}

TEST_CASE("plain_list: assign replaces what it had") {
  plain_list<int> list(4);
  list.assign(2, 9);
  CHECK(copy_of(list) == std::vector<int>{9, 9});
  list.clear();
  CHECK(list.empty());
}
