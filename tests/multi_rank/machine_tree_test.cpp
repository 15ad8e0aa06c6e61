// SPDX-License-Identifier: MIT
#include "machines.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>

namespace machine_tree {
namespace {

using namespace hfcomm;
using namespace multi_rank;

/// Elements of 4 bytes: several chunks and an odd rest. A sanitizer gets one chunk.
constexpr std::size_t many = (under_thread_sanitizer ? std::size_t{1} << 18 : std::size_t{9} << 17) + 13;

/// One machine, and the same ranks on several: each with a whole subtree of the order, and otherwise.
const std::vector<machine_layout> layouts =
    under_thread_sanitizer ? std::vector<machine_layout>{{4}, {2, 2}, {1, 2, 1}}
                           : std::vector<machine_layout>{{4},       {2, 2}, {3, 1}, {1, 3},       {1, 2, 1},
                                                         {2, 1, 1}, {7},    {4, 3}, {2, 2, 2, 1}, {3, 4}};

/// Calls `reduce_all(in, group)` on each layout, and compares the results with those on one machine.
template <class T, class ReduceAll>
void check_all_layouts(ReduceAll reduce_all) {
  std::vector<T> wanted;
  for (const auto& machines : layouts) {
    on_machines(machines, [&](const process_group& world) {
      const std::vector<T> result = reduce_all(values_of<T>(world.rank(), many), world);
      if (machines.size() == 1 && world.rank() == 0) {
        wanted = result;
      }
      barrier(world);
      CHECK(have_same_bits<T>(result, wanted));
    });
  }
}

template <class T>
void check_all_reduce(reduce_op op) {
  CAPTURE(to_string(op));
  check_all_layouts<T>([&](std::vector<T> values, const process_group& world) {
    all_reduce(values, op, world);
    return values;
  });
}

}  // namespace

TEST_CASE("machine tree: an all_reduce has the bits of one machine") {
  check_all_reduce<float>(reduce_op::sum);
  check_all_reduce<float>(reduce_op::average);
  check_all_reduce<double>(reduce_op::product);
  check_all_reduce<std::int32_t>(reduce_op::max);
  check_all_reduce<std::uint64_t>(reduce_op::bit_xor);
  check_all_reduce<std::complex<float>>(reduce_op::product);
  check_all_reduce<std::complex<double>>(reduce_op::average);
}

TEST_CASE("machine tree: elements that are rounded once at the end have the bits of one machine") {
  check_all_reduce<float16>(reduce_op::sum);
  check_all_reduce<bfloat16>(reduce_op::average);
}

TEST_CASE("machine tree: each rank has its own factor of a premultiplied sum") {
  check_all_layouts<float>([](std::vector<float> values, const process_group& world) {
    all_reduce(values, reduce_op::premultiplied_sum(0.1 + world.rank() / 3.0), world);
    return values;
  });
}

TEST_CASE("machine tree: infinities and NaNs have the bits of one machine") {
  for (const reduce_op op : {reduce_op{reduce_op::sum}, reduce_op{reduce_op::min}}) {
    check_all_layouts<float>([&](std::vector<float> values, const process_group& world) {
      for (std::size_t i = 0; i < values.size(); i += 7) {
        const std::uint32_t nan = 0xffc00001U + static_cast<std::uint32_t>(world.rank());
        values[i] = i % 4 == as_index(world.rank()) ? std::bit_cast<float>(nan) : i % 3 == 0 ? HUGE_VALF : -HUGE_VALF;
      }
      all_reduce(values, op, world);
      return values;
    });
  }
}

TEST_CASE("machine tree: a reduce gives any root the bits of one machine, and leaves the other outputs alone") {
  for (const int root : {0, 1, 3}) {
    CAPTURE(root);
    std::vector<float> wanted;
    for (const auto& machines : layouts) {
      on_machines(machines, [&](const process_group& world) {
        const auto values = values_of<float>(world.rank(), many);
        std::vector<float> out(values.size(), 5);
        reduce(values, out, root, reduce_op::sum, world);
        if (world.rank() != root) {
          CHECK(std::all_of(out.begin(), out.end(), [](float value) { return value == 5; }));
        } else if (machines.size() == 1) {
          wanted = out;
        } else {
          CHECK(have_same_bits<float>(out, wanted));
        }
      });
    }
  }
}

TEST_CASE("machine tree: many reductions in a row, of changing lengths, keep apart") {
  std::vector<std::vector<float>> wanted(6);
  for (const auto& machines : layouts) {
    on_machines(machines, [&](const process_group& world) {
      for (std::size_t turn = 0; turn < wanted.size(); ++turn) {
        auto values = values_of<float>(world.rank() + static_cast<int>(turn), many / (turn % 3 + 1) + turn);
        all_reduce(values, reduce_op::sum, world);
        const std::vector<int> numbers = all_gather(static_cast<int>(turn), world);
        CHECK(std::all_of(numbers.begin(), numbers.end(), [&](int n) { return n == static_cast<int>(turn); }));
        if (machines.size() == 1 && world.rank() == 0) {
          wanted[turn] = values;
        }
        barrier(world);
        CHECK(have_same_bits<float>(values, wanted[turn]));
      }
    });
  }
}

TEST_CASE("machine tree: ranks dealt in turn have the results of one machine, and so have integers") {
  std::vector<float> wanted;
  for (const auto& machines : {machine_layout{4}, machine_layout{2, 2}}) {
    on_machines(machines, [&](const process_group& world) {
      const int place = machines.size() == 1 ? world.rank() : world.rank() % 2 * 2 + world.rank() / 2;
      const process_group dealt = world.split(0, place);
      REQUIRE(dealt.rank() == place);
      std::vector<float> values = values_of<float>(place, many);
      all_reduce(values, reduce_op::sum, dealt);
      if (machines.size() == 1 && place == 0) {
        wanted = values;
      }
      barrier(world);
      CHECK(have_same_bits<float>(values, wanted));
      std::vector<std::int32_t> numbers(many, 1 << place);
      numbers.back() = place;
      all_reduce(numbers, reduce_op::sum, dealt);
      CHECK(numbers.front() == 15);
      CHECK(numbers.back() == 6);
      CHECK(std::all_of(numbers.begin(), numbers.end() - 1, [](std::int32_t number) { return number == 15; }));
    });
  }
}

TEST_CASE("machine tree: a call that differs is a mismatch_error on all ranks") {
  on_machines({2, 2}, [](const process_group& world) {
    std::vector<float> values(many + (world.rank() == 3 ? 1 : 0));
    CHECK_THROWS_AS(all_reduce(values, reduce_op::sum, world), mismatch_error);
    std::vector<float> others(many, 1);
    all_reduce(others, reduce_op::sum, world);
    CHECK(others.back() == 4);
  });
}

}  // namespace machine_tree
