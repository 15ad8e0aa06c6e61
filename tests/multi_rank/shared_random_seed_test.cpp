// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <cstdint>
#include <cstdlib>
#include <set>

namespace {

using namespace hfcomm;
using namespace multi_rank;

TEST_CASE("shared_random_seed: it is the same on every rank and another one each time") {
  at_every_size([](const process_group& world) {
    std::set<std::uint64_t> seeds;
    for (int round = 0; round < 20; ++round) {
      const std::uint64_t seed = shared_random_seed();
      check_same_everywhere(seed, world);
      seeds.insert(seed);
    }
    CHECK(seeds.size() == 20);
    CHECK(*seeds.rbegin() > 0xffffffffULL);
  });
}

TEST_CASE("shared_random_seed: each group has its own") {
  at_every_size([](const process_group& world) {
    const auto half = world.split(world.rank() % 2);
    const std::uint64_t seed = shared_random_seed(half);
    check_same_everywhere(seed, half);
    const auto all = all_gather(seed);
    CHECK((std::set<std::uint64_t>(all.begin(), all.end()).size() == (world.size() == 1 ? 1U : 2U)));
  });
}

TEST_CASE("shared_random_seed: without init it is a random number, and no generator's state changes") {
  std::srand(5);
  const int expected = std::rand();
  std::srand(5);
  CHECK(shared_random_seed() != shared_random_seed());
  CHECK(std::rand() == expected);
}

}  // namespace
