// SPDX-License-Identifier: MIT
#include "machines.hpp"

#include <complex>
#include <cstdint>
#include <numeric>

namespace machine_tree {
namespace {

using namespace hfcomm;
using namespace multi_rank;

/// The ranks of a group's machines, in rank order.
using machine_ranks = std::vector<std::vector<int>>;

/// Elements of 4 bytes: for one step, for a few, and for a pipeline of several chunks with an odd rest.
const std::vector<std::size_t> lengths = under_thread_sanitizer
                                             ? std::vector<std::size_t>{5, 9000, (std::size_t{1} << 18) + 13}
                                             : std::vector<std::size_t>{1, 5, 9000, (std::size_t{9} << 17) + 13};
const std::vector<machine_layout> layouts = under_thread_sanitizer
                                                ? std::vector<machine_layout>{{2, 2}, {1, 2, 1}}
                                                : std::vector<machine_layout>{{2, 2}, {3, 1}, {1, 2, 1}, {2, 1, 3}};

/// The sums that the order promises, of values times the rank's factor.
template <class T>
std::vector<T> sums_of(const machine_ranks& machines, std::size_t count, const std::vector<T>& factors) {
  const std::size_t period = period_of(count);
  std::vector<T> sums;
  for (const auto& ranks : machines) {
    std::vector<T> partial;
    for (const int rank : ranks) {
      std::vector<T> values = values_of<T>(rank, period);
      for (std::size_t i = 0; i < period; ++i) {
        const volatile T product = values[i] * factors[as_index(rank)];  // rounded before it is added
        values[i] = partial.empty() ? T(product) : partial[i] + product;
      }
      partial = values;
    }
    for (std::size_t i = 0; i < period && !sums.empty(); ++i) {
      partial[i] = sums[i] + partial[i];
    }
    sums = partial;
  }
  sums.resize(count);
  repeat_period(std::span(sums));
  return sums;
}

machine_ranks ranks_of(const machine_layout& layout) {
  machine_ranks machines;
  int next = 0;
  for (const int count : layout) {
    machines.emplace_back(as_index(count));
    std::iota(machines.back().begin(), machines.back().end(), next);
    next += count;
  }
  return machines;
}

template <class T>
void check_sums() {
  for (const auto& layout : layouts) {
    const std::size_t size = as_index(ranks_in(layout));
    for (const std::size_t count : lengths) {
      CAPTURE(count);
      const std::vector<T> wanted = sums_of(ranks_of(layout), count, std::vector<T>(size, 1));
      std::vector<T> divided = wanted;
      for (T& value : divided) {
        value = value / static_cast<T>(size);
      }
      on_machines(layout, [&](const process_group& world) {
        const process_group group = world.with_order(reduction_order::tree);
        const std::vector<T> values = values_of<T>(world.rank(), count);
        std::vector<T> sums = values;
        all_reduce(sums, reduce_op::sum, group);
        CHECK(have_same_bits<T>(sums, wanted));

        std::vector<T> averages = values;
        all_reduce(averages, reduce_op::average, group);
        CHECK(have_same_bits<T>(averages, divided));
      });
    }
  }
}

}  // namespace

TEST_CASE("tree order: sums and averages combine each machine first, whatever the length") {
  check_sums<float>();
  check_sums<double>();
}

TEST_CASE("tree order: each rank has its own factor of a premultiplied sum") {
  for (const auto& layout : layouts) {
    std::vector<double> factors;
    for (int rank = 0; rank < ranks_in(layout); ++rank) {
      factors.push_back(0.25 + rank / 3.0);
    }
    for (const std::size_t count : lengths) {
      const std::vector<double> wanted = sums_of(ranks_of(layout), count, factors);
      on_machines(layout, [&](const process_group& world) {
        std::vector<double> values = values_of<double>(world.rank(), count);
        all_reduce(values, reduce_op::premultiplied_sum(factors[as_index(world.rank())]),
                   world.with_order(reduction_order::tree));
        CHECK(have_same_bits<double>(values, wanted));
      });
    }
  }
}

TEST_CASE("tree order: reduce and reduce_scatter combine as all_reduce does") {
  for (const auto& layout : layouts) {
    for (const std::size_t count : lengths) {
      on_machines(layout, [&](const process_group& world) {
        const process_group group = world.with_order(reduction_order::tree);
        const std::size_t all = count * as_index(world.size());
        const auto values = values_of<float>(world.rank(), all);
        std::vector<float> wanted = values;
        all_reduce(wanted, reduce_op::sum, group);

        std::vector<float> reduced(all, 5);
        const int root = world.size() - 1;
        reduce(values, reduced, root, reduce_op::sum, group);
        CHECK(have_same_bits<float>(reduced, world.rank() == root ? wanted : std::vector<float>(all, 5)));

        std::vector<float> part(count);
        reduce_scatter(values, part, reduce_op::sum, group);
        CHECK(have_same_bits<float>(part, std::span(wanted).subspan(count * as_index(world.rank()), count)));
      });
    }
  }
}

TEST_CASE("tree order: integers, minima, complex numbers and narrow floats have the values of rank order") {
  const std::size_t count = lengths.back();
  on_machines({2, 1, 1}, [&](const process_group& world) {
    const process_group group = world.with_order(reduction_order::tree);
    const auto check = [&]<class T>(std::vector<T> values, reduce_op op) {
      std::vector<T> wanted = values;
      all_reduce(wanted, op, world);
      all_reduce(values, op, group);
      CHECK(have_same_bits<T>(values, wanted));
    };
    std::vector<std::int32_t> integers(count);
    std::iota(integers.begin(), integers.end(), world.rank() * 1'000'003);
    check(integers, reduce_op::sum);
    check(values_of<float>(world.rank(), count), reduce_op::min);
    check(values_of<bfloat16>(world.rank(), count), reduce_op::sum);
    std::vector<std::complex<float>> units(count, std::complex<float>(0, world.rank() % 2 == 0 ? 1.F : -1.F));
    check(units, reduce_op::product);
  });
}

TEST_CASE("tree order: on one machine it is rank order") {
  on_machines({4}, [](const process_group& world) {
    std::vector<float> wanted = values_of<float>(world.rank(), lengths.back());
    std::vector<float> values = wanted;
    all_reduce(wanted, reduce_op::sum, world);
    all_reduce(values, reduce_op::sum, world.with_order(reduction_order::tree));
    CHECK(have_same_bits<float>(values, wanted));
    CHECK(world.with_order(reduction_order::tree).order() == reduction_order::tree);
    CHECK(world.order() == reduction_order::rank);
  });
}

TEST_CASE("tree order: ranks that disagree about the order get a mismatch_error that says so") {
  on_machines({2, 1}, [](const process_group& world) {
    const process_group group = world.rank() == 2 ? world.with_order(reduction_order::tree) : world;
    const auto problem = error_of<mismatch_error>([&] { (void)all_reduce(1.0F, reduce_op::sum, group); });
    CHECK_CONTAINS(problem.what(), "rank 2 called all_reduce");
    CHECK_CONTAINS(problem.what(), "sum, tree order");
    barrier(group);  // only reductions have an order
  });
}

}  // namespace machine_tree
