// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <bit>
#include <complex>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "../tree.hpp"

#include <hfcomm/collectives/exclusive_scan.hpp>
#include <hfcomm/collectives/scan.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// A float16 of somebody else's.
struct half_like {
  std::uint16_t bits;
};

half_like half_like_of(float value) { return std::bit_cast<half_like>(float16(value)); }
float float_of(half_like value) { return static_cast<float>(std::bit_cast<float16>(value)); }

}  // namespace

template <>
inline constexpr element_type hfcomm::enable_element_type<half_like> = element_type::float16;

namespace {

static_assert(plain<half_like> && !plain<const half_like> && serializable<half_like> && reducible_element<half_like>);
static_assert(reducible_buffer<std::span<half_like>> && writable_reducible_buffer<std::vector<half_like>&>);

TEST_CASE("enable_element_type: alone it makes a type's spans, vectors and values reducible") {
  at_every_size([](const process_group& world) {
    const auto n = static_cast<float>(world.size());
    std::vector values(3, half_like_of(1.5F));
    all_reduce(values);
    CHECK(float_of(values[2]) == 1.5F * n);
    all_reduce(std::span(values), reduce_op::average);
    CHECK(float_of(values[0]) == 1.5F * n);
    CHECK(float_of(all_reduce(half_like_of(static_cast<float>(world.rank())), reduce_op::max)) == n - 1);
    CHECK(float_of(scan(half_like_of(2))) == 2.0F * static_cast<float>(world.rank() + 1));
    const float least = float_of(hfcomm::exclusive_scan(half_like_of(2), reduce_op::min));
    CHECK(least == (world.rank() == 0 ? std::numeric_limits<float>::infinity() : 2.0F));
    CHECK(all_gather(half_like_of(2)).size() == as_index(world.size()));
  });
}

/// Rank r's element i.
template <class Real>
std::complex<Real> complex_element(int rank, std::size_t i) {
  return {static_cast<Real>(rank + 1), static_cast<Real>(i % 5) - static_cast<Real>(rank)};
}

template <class Real>
std::vector<std::complex<Real>> complex_elements(int rank, std::size_t count) {
  std::vector<std::complex<Real>> all;
  for (std::size_t i = 0; i < count; ++i) {
    all.push_back(complex_element<Real>(rank, i));
  }
  return all;
}

/// Reduces all ranks' elements.
template <class Real, class Op>
std::vector<std::complex<Real>> reduced_complex(int ranks, std::size_t count, Op op) {
  std::vector<std::complex<Real>> result;
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<std::complex<Real>> column;
    for (int rank = 0; rank < ranks; ++rank) {
      column.push_back(complex_element<Real>(rank, i));
    }
    result.push_back(combine_in_tree(std::span<const std::complex<Real>>(column), op));
  }
  return result;
}

template <class Real, class Change>
std::vector<std::complex<Real>> changed_complex(std::vector<std::complex<Real>> values, Change change) {
  for (auto& value : values) {
    value = change(value);
  }
  return values;
}

TEST_CASE_TEMPLATE("complex: sums, products and averages of spans, vectors and numbers", Real, float, double) {
  at_every_size([](const process_group& world) {
    const int n = world.size();
    for (const std::size_t count : each_of(0, 1, 129, 100'000)) {
      const auto mine = complex_elements<Real>(world.rank(), count);
      const auto sums = reduced_complex<Real>(n, count, std::plus<>());
      const auto products = reduced_complex<Real>(n, count, std::multiplies<>());
      auto data = mine;
      all_reduce(data);
      CHECK((data == sums));
      all_reduce(mine, std::span(data), reduce_op::product);
      CHECK((data == products));
      data = mine;
      all_reduce_async(std::span(data), reduce_op::average).wait();
      CHECK((data == changed_complex(sums, [&](auto sum) { return sum / static_cast<Real>(n); })));
      data = mine;
      hfcomm::reduce(data, n - 1, reduce_op::product);
      CHECK((data == (world.rank() == n - 1 ? products : mine)));
      data = mine;
      all_reduce(std::span(data), reduce_op::premultiplied_sum(2.0));
      CHECK((data == changed_complex(sums, [](auto sum) { return sum * Real(2); })));
      std::vector<std::complex<Real>> list = mine;
      all_reduce(std::vector{std::span(list)}, reduce_op::product);
      CHECK((list == products));
    }
    CHECK(all_reduce(complex_element<Real>(world.rank(), 3)) == reduced_complex<Real>(n, 4, std::plus<>())[3]);
  });
}

TEST_CASE("complex: sums of as many elements as slots hold, among any number of ranks") {
  for (const int ranks : {3, 5, 7, 9, 12, 31}) {
    const std::size_t count = 32'768;
    const auto sums = reduced_complex<double>(ranks, count, std::plus<>());
    run_ranks(ranks, [&](const process_group& world) {
      for (int repetition = 0; repetition < 3; ++repetition) {
        auto data = complex_elements<double>(world.rank(), count);
        all_reduce(data);
        CHECK((data == sums));
      }
    });
  }
}

TEST_CASE("complex: reduce_scatter and dictionaries") {
  at_every_size([](const process_group& world) {
    const int n = world.size();
    const auto mine = complex_elements<double>(world.rank(), as_index(n));
    std::complex<double> own;
    reduce_scatter(mine, std::span(&own, 1), reduce_op::product);
    CHECK(own == reduced_complex<double>(n, as_index(n), std::multiplies<>())[as_index(world.rank())]);
    const std::map<std::string, std::complex<float>> values{{"z", {1, static_cast<float>(world.rank())}}};
    CHECK(all_reduce_dict(values, reduce_op::sum).at("z") ==
          std::complex<float>(static_cast<float>(n), static_cast<float>(n * (n - 1) / 2)));
  });
}

TEST_CASE("complex: a minimum chosen at run time is a usage_error that says why") {
  at_every_size([](const process_group& world) {
    const auto problem =
        error_of<usage_error>([&] { (void)all_reduce(std::complex<float>(1, 2), reduce_op(reduce_kind::min), world); });
    CHECK(contains(problem.what(), "complex numbers have no order"));
    CHECK(all_reduce(std::complex<float>(1, 2)) == std::complex<float>(1, 2) * static_cast<float>(world.size()));
  });
}

}  // namespace
