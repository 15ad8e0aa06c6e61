// SPDX-License-Identifier: MIT
#include "machines.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include <hfcomm/direct.hpp>

namespace direct_collectives {
namespace {

using namespace hfcomm;
using namespace multi_rank;

/// As many ranks on one machine, and on a machine each.
const std::vector<machine_layout> layouts =
    under_thread_sanitizer ? std::vector<machine_layout>{{3}, {1, 1, 1}}
                           : std::vector<machine_layout>{{2}, {1, 1}, {3}, {1, 1, 1}, {5}, {1, 1, 1, 1, 1}};

/// Lengths around every limit: nothing, a message with its header, bytes of their own, and chunks with an odd rest.
const std::vector<std::size_t> counts = under_thread_sanitizer
                                            ? std::vector<std::size_t>{3, 5000, 300'001}
                                            : std::vector<std::size_t>{0, 1, 3, 4096, 4097, 20'000, 300'001, 1'500'007};

/// Calls `perform(in, world)` on each layout with each length, and compares its results with those on one machine.
template <class T, class Perform>
void check_all(Perform perform) {
  for (const std::size_t count : counts) {
    CAPTURE(count);
    std::vector<std::vector<T>> wanted;
    for (const auto& machines : layouts) {
      if (machines.size() == 1) {
        wanted.assign(as_index(machines.front()), {});
      }
      on_machines(machines, [&](const process_group& world) {
        const std::vector<T> result = perform(values_of<T>(world.rank(), count), world);
        auto& mine = wanted[as_index(world.rank())];
        if (machines.size() == 1) {
          mine = result;
        } else {
          CHECK(have_same_bits<T>(result, mine));
        }
      });
    }
  }
}

}  // namespace

TEST_CASE("direct collectives: reductions have the bits of one machine") {
  for (const reduce_op op : {reduce_op{reduce_op::sum}, reduce_op{reduce_op::average}}) {
    check_all<float>([&](std::vector<float> values, const process_group& world) {
      all_reduce(values, op, world);
      return values;
    });
  }
  check_all<bfloat16>([](std::vector<bfloat16> values, const process_group& world) {
    std::vector<bfloat16> out(values.size());
    all_reduce(values, out, reduce_op::sum, world);
    return out;
  });
  check_all<double>([](std::vector<double> values, const process_group& world) {
    all_reduce(values, reduce_op::premultiplied_sum(0.1 + world.rank() / 3.0), world);
    return values;
  });
}

TEST_CASE("direct collectives: a reduce gives each root the bits of one machine, and leaves other outputs alone") {
  for (const int root : {0, 1}) {
    check_all<float>([&](const std::vector<float>& values, const process_group& world) {
      std::vector<float> out(values.size(), 5);
      reduce(values, out, root, reduce_op::sum, world);
      return out;
    });
  }
}

TEST_CASE("direct collectives: a reduce_scatter has the bits of one machine, in place, too") {
  check_all<float>([](const std::vector<float>& values, const process_group& world) {
    std::vector<float> in;
    for (int owner = 0; owner < world.size(); ++owner) {
      in.insert(in.end(), values.begin(), values.end());
    }
    std::vector<float> out(values.size());
    reduce_scatter(in, out, reduce_op::sum, world);
    return out;
  });
}

TEST_CASE("direct collectives: broadcast, gather, all_gather, scatter and all_to_all move every element") {
  check_all<std::int32_t>([](std::vector<std::int32_t> values, const process_group& world) {
    broadcast(std::span(values), world.size() - 1, world);
    return values;
  });
  check_all<std::int32_t>([](const std::vector<std::int32_t>& values, const process_group& world) {
    std::vector<std::int32_t> all(values.size() * as_index(world.size()), 1);
    all_gather(std::span(values), std::span(all), world);
    std::vector<std::int32_t> at_root(all.size(), 2);
    gather(std::span(values), std::span(at_root), 1, world);
    std::vector<std::int32_t> part(values.size(), 3);
    scatter(std::span(std::as_const(all)), std::span(part), 1, world);
    std::vector<std::int32_t> turned(all.size(), 4);
    all_to_all(std::span(std::as_const(all)), std::span(turned), world);
    all.insert(all.end(), at_root.begin(), at_root.end());
    all.insert(all.end(), part.begin(), part.end());
    all.insert(all.end(), turned.begin(), turned.end());
    return all;
  });
}

TEST_CASE("direct collectives: calls that differ are a mismatch_error on all ranks, and change nothing") {
  for (const std::size_t count : each_of(5, 10'000, 500'000)) {
    on_machines({1, 1, 1}, [&](const process_group& world) {
      for (int turn = 0; turn < 3; ++turn) {
        std::vector<float> values(count, 1);
        const auto problem = error_of<mismatch_error>([&] {
          world.rank() == 2 ? broadcast(std::span(values), 0, world) : all_reduce(values, reduce_op::sum, world);
        });
        CHECK(problem.first_rank() == 0);
        CHECK(problem.second_rank() == 2);
        CHECK_CONTAINS(problem.what(), "all_reduce(");
        CHECK_CONTAINS(problem.what(), "broadcast(");
        CHECK(std::ranges::all_of(values, [](float value) { return value == 1; }));
        all_reduce(values, reduce_op::sum, world);
        CHECK(values.back() == 3);
      }
    });
  }
}

TEST_CASE(
    "direct collectives: lengths that differ, and an object against elements, are a mismatch_error on all ranks") {
  on_machines({1, 1, 1}, [](const process_group& world) {
    std::vector<float> values(world.rank() == 1 ? 200'000 : 100'000, 1);
    CHECK_THROWS_AS(all_reduce(values, reduce_op::sum, world), mismatch_error);
    CHECK_THROWS_AS(world.rank() == 0 ? broadcast(std::span(values), 0, world) : broadcast(values, 0, world),
                    mismatch_error);
    check_usable(world);
  });
}

TEST_CASE("direct collectives: what one rank cannot do is a peer_error on the others") {
  on_machines({1, 1, 1}, [](const process_group& world) {
    std::vector<float> values(10'000, 1);
    std::vector<float> out(world.rank() == 1 ? 3 : values.size());
    if (world.rank() == 1) {
      CHECK_THROWS_AS(all_reduce(values, out, reduce_op::sum, world), usage_error);
    } else {
      CHECK(error_of<peer_error>([&] { all_reduce(values, out, reduce_op::sum, world); }).peer() == 1);
    }
    check_usable(world);
  });
}

TEST_CASE("direct collectives: a rank that never comes is named at the deadline, and one that has left at once") {
  on_machines({1, 1, 1}, [](const process_group& world) {
    const process_group hasty = world.split(0).with_timeout(std::chrono::milliseconds(300));
    std::vector<float> values(300'000, 1);
    if (world.rank() != 2) {
      const auto problem = error_of<timeout_error>([&] { all_reduce(values, reduce_op::sum, hasty); });
      CHECK(problem.missing() == std::vector{2});
    }
    barrier(world);
    {
      const process_group other = world.split(0);
      if (world.rank() != 1) {
        CHECK(error_of<peer_error>([&] { barrier(other); }).peer() == 1);
      }
    }
    check_usable(world);
  });
}

TEST_CASE("direct collectives: groups, threads and messages do not get in each other's way") {
  on_machines({1, 1, 1}, [](const process_group& world) {
    const process_group other = world.split(0, -world.rank());
    std::vector<std::int64_t> mine(100'000, 1);
    std::vector<std::int64_t> theirs(300, 2);
    std::jthread thread([&] {
      for (int turn = 0; turn < 50; ++turn) {
        all_reduce(theirs, reduce_op::max, other);
        std::vector<int> objects(as_index(turn), turn);
        broadcast(objects, 0, other);
      }
    });
    for (int turn = 0; turn < 20; ++turn) {
      all_reduce(mine, reduce_op::max, world);
      const int next = (world.rank() + 1) % world.size();
      auto sent = isend(turn, next, 7, world);
      CHECK(recv<int>((world.rank() + 2) % world.size(), 7, world) == turn);
      sent.wait();
    }
    CHECK(mine.back() == 1);
  });
}

}  // namespace direct_collectives
