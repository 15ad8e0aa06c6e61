// SPDX-License-Identifier: MIT
#include "ranks.hpp"
#include "toy_model.hpp"

#include <cstring>

#include <hfcomm/ddp.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// Parameters of all types, with empty ones, in an order that does not group them.
struct mixed_model {
  explicit mixed_model(int rank) {
    fill(a, rank), fill(b, rank), fill(c, rank), fill(d, rank), fill(e, rank), fill(f, rank);
  }
  template <class T>
  static void fill(toy_parameter<T>& parameter, int rank) {
    for (std::size_t i = 0; i < parameter.value.size(); ++i) {
      parameter.value[i] = T(toy_model::gradient_of(rank, 1, i));
      parameter.gradient[i] = T(toy_model::gradient_of(rank, 2, i, 5));
    }
  }
  [[nodiscard]] std::vector<ddp_parameter> views() {
    return {a.view(), b.view(), c.view(), d.view(), e.view(), f.view()};
  }
  toy_parameter<float> a{"a", 100};
  toy_parameter<double> b{"b", 30};
  toy_parameter<bfloat16> c{"c", 50'000};
  toy_parameter<float> d{"d", 0};
  toy_parameter<float16> e{"e", 3};
  toy_parameter<float> f{"f", 7};
};

bool same_models(mixed_model& left, mixed_model& right) {
  const auto equal = [](const auto& one, const auto& other) {
    return same_bits(one.value, other.value) && same_bits(one.gradient, other.gradient);
  };
  return equal(left.a, right.a) && equal(left.b, right.b) && equal(left.c, right.c) && equal(left.d, right.d) &&
         equal(left.e, right.e) && equal(left.f, right.f);
}

TEST_CASE("all_reduce_params: gradients of all types have the bits of separate reductions") {
  at_every_size([](const process_group& world) {
    for (const std::size_t bytes : each_of(0, 30, 1'000, 25'000'000)) {
      for (const reduce_op op : std::array<reduce_op, 3>{reduce_op::average, reduce_op::sum, reduce_op::max}) {
        mixed_model together(world.rank());
        mixed_model apart(world.rank());
        all_reduce_params(together.views(), op, bytes);
        all_reduce(apart.a.gradient, op), all_reduce(apart.b.gradient, op), all_reduce(apart.c.gradient, op);
        all_reduce(apart.e.gradient, op), all_reduce(apart.f.gradient, op);
        CHECK(same_models(together, apart));
      }
    }
  });
}

TEST_CASE("all_reduce_param_values: it reduces values of all types and leaves the gradients unchanged") {
  at_every_size([](const process_group& world) {
    mixed_model together(world.rank());
    mixed_model apart(world.rank());
    const auto average = reduce_op::average;
    all_reduce_param_values(together.views());
    all_reduce(apart.a.value, average), all_reduce(apart.b.value, average), all_reduce(apart.c.value, average);
    all_reduce(apart.e.value, average), all_reduce(apart.f.value, average);
    CHECK(same_models(together, apart));
  });
}

TEST_CASE("all_reduce_params: it averages by default, and in any group") {
  at_every_size([](const process_group& world) {
    toy_model model({3, 70'000});
    model.set_gradient(world.rank(), 0);
    model.set_gradient(world.rank(), 1);
    all_reduce_params(model.views());
    CHECK(model.is_average(world.size(), 0));
    CHECK(model.is_average(world.size(), 1));
    const auto half = world.split(world.rank() % 2);
    model.set_gradient(half.rank(), 0);
    all_reduce_params(model.views(), reduce_op::average, 1'000, half);
    CHECK(model.is_average(half.size(), 0));
    all_reduce_params({});
    check_usable(world);
  });
}

TEST_CASE("all_reduce_params: models that differ are an error on every rank that names the parameter") {
  const auto expect = [](auto make_odd, const std::string& usual, const std::string& different) {
    at_every_size(
        [&](const process_group& world) {
          const bool odd = world.rank() == 1;
          toy_parameter<float> first("first", 5);
          toy_parameter<float> second("second", 6);
          first.gradient.assign(5, 1.0F);
          std::vector<ddp_parameter> views{first.view(), second.view()};
          if (odd) {
            make_odd(views);
          }
          const auto problem = error_of<mismatch_error>([&] { all_reduce_params(views); });
          CHECK(problem.operation() == "all_reduce_params");
          CHECK_CONTAINS(problem.what(), "all_reduce_params_test.cpp");
          CHECK_CONTAINS(problem.what(), "rank 0 has " + usual + ", rank 1 has " + different);
          check_same_everywhere(problem.detail(), world);
          CHECK((first.gradient == std::vector<float>(5, 1.0F)));
          check_usable(world);
        },
        2);
  };
  using list = std::vector<ddp_parameter>;
  expect([](list& views) { views.pop_back(); }, "\"second\" (6 x float32)", "nothing");
  expect([](list& views) { std::swap(views[0], views[1]); }, "\"first\" (5 x float32)", "\"second\" (6 x float32)");
  toy_parameter<double> other("second", 6);
  expect([&](list& views) { views[1] = other.view(); }, "\"second\" (6 x float32)", "\"second\" (6 x float64)");
  toy_parameter<float> renamed("second2", 6);
  expect([&](list& views) { views[1] = renamed.view(); }, "\"second\" (6 x float32)", "\"second2\" (6 x float32)");
}

TEST_CASE("all_reduce_params: a reduction that a type lacks is an error on every rank") {
  at_every_size([](const process_group& world) {
    std::vector<ddp_parameter> views;
    std::vector<std::int32_t> numbers(3);
    toy_parameter<float> usual("usual", 3);
    views.push_back(usual.view());
    if (world.rank() == world.size() - 1) {
      const auto bytes = std::as_writable_bytes(std::span(numbers));
      views.push_back({"odd", element_type::int32, bytes, bytes});
      CHECK_CONTAINS(error_of<usage_error>([&] { all_reduce_params(views); }).what(), "average of int32");
    } else {
      CHECK_CONTAINS(error_of<peer_error>([&] { all_reduce_params(views); }).what(), "average of int32");
    }
    check_usable(world);
  });
}

TEST_CASE("all_reduce_params: memory at address 0 is an error on every rank") {
  at_every_size([](const process_group& world) {
    const int odd = world.size() - 1;
    std::vector<float> memory(4, 1.0F);
    const std::span<float> nowhere(static_cast<float*>(nullptr), 4);
    const auto part = world.rank() == odd ? nowhere : std::span(memory);
    const std::vector<ddp_parameter> parameters{named_parameter("a", part, part)};
    for (const auto reduce : {all_reduce_params, all_reduce_param_values}) {
      const auto call = [&] {
        reduce(parameters, reduce_op::sum, 100, hfcomm::world(), std::source_location::current());
      };
      if (world.rank() == odd) {
        CHECK_CONTAINS(error_of<usage_error>(call).what(), "parameter \"a\": 4 elements are at address 0");
      } else {
        CHECK_CONTAINS(error_of<peer_error>(call).what(), "parameter \"a\": 4 elements are at address 0");
      }
      check_usable(world);
    }
  });
}

TEST_CASE("all_reduce_params: a parameter not made by named_parameter is an error on every rank") {
  at_every_size([](const process_group& world) {
    const int odd = world.size() - 1;
    std::vector<float> memory(4, 1.0F);
    std::vector<ddp_parameter> parameters{named_parameter("a", memory, memory)};
    if (world.rank() == odd) {
      const auto bytes = std::as_writable_bytes(std::span(memory));
      parameters = {{.name = "a", .type = element_type::float32, .value = bytes, .gradient = bytes}};
    }
    const auto call = [&] { all_reduce_params(parameters, reduce_op::sum, 100, world); };
    const auto wrap = [&] { const distributed_data_parallel ddp(parameters); };
    if (world.rank() == odd) {
      CHECK_CONTAINS(error_of<usage_error>(call).what(), "parameter \"a\" has no kernel");
      CHECK_CONTAINS(error_of<usage_error>(wrap).what(), "parameter \"a\" has no kernel");
    } else {
      CHECK_CONTAINS(error_of<peer_error>(call).what(), "parameter \"a\" has no kernel");
      CHECK_CONTAINS(error_of<peer_error>(wrap).what(), "parameter \"a\" has no kernel");
    }
    check_usable(world);
  });
}

}  // namespace
