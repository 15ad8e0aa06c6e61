// SPDX-License-Identifier: MIT
#include "ranks.hpp"
#include "toy_model.hpp"

#include <algorithm>
#include <cstdint>
#include <span>

#include <hfcomm/ddp.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

TEST_CASE("ddp: every rank starts with rank 0's parameters and buffers") {
  at_every_size([](const process_group& world) {
    for (const std::size_t chunk :
         {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{1000}, std::size_t{25} << 20}) {
      const std::size_t count = chunk <= 7 ? 20 : 70'000;
      toy_parameter<float> weight("weight", count);
      toy_parameter<double> bias("bias", 3);
      toy_parameter<bfloat16> scale("scale", 5);
      toy_parameter<float> nothing("nothing", 0);
      std::vector<std::int64_t> steps(2, world.rank());
      std::fill(weight.value.begin(), weight.value.end(), static_cast<float>(world.rank() + 1));
      std::fill(weight.gradient.begin(), weight.gradient.end(), static_cast<float>(world.rank() + 1));
      std::fill(bias.value.begin(), bias.value.end(), world.rank() + 1.0);
      std::fill(scale.value.begin(), scale.value.end(), bfloat16(static_cast<float>(world.rank() + 1)));
      const distributed_data_parallel ddp({weight.view(), bias.view(), nothing.view(), scale.view()},
                                          {named_buffer("steps", steps)}, {.broadcast_chunk_bytes = chunk});
      CHECK((weight.value == std::vector<float>(count, 1.0F)));
      CHECK((bias.value == std::vector<double>(3, 1.0)));
      CHECK(static_cast<float>(scale.value.back()) == 1.0F);
      CHECK((steps == std::vector<std::int64_t>(2, 0)));
      CHECK((weight.gradient == std::vector<float>(count, static_cast<float>(world.rank() + 1))));
      CHECK(ddp.group() == world);
    }
    check_usable(world);
  });
}

TEST_CASE("ddp: ignored parameters and buffers are unchanged") {
  at_every_size([](const process_group& world) {
    toy_model model({4, 5, 6});
    std::vector<float> counts(1, static_cast<float>(world.rank()));
    std::vector<float> own(1, static_cast<float>(world.rank()));
    for (std::size_t index = 0; index < model.size(); ++index) {
      std::fill(model[index].value.begin(), model[index].value.end(), static_cast<float>(world.rank()));
      model.set_gradient(world.rank(), index);
    }
    distributed_data_parallel ddp(model.views(), {named_buffer("counts", counts), named_buffer("own", own)},
                                  {.ignore = {"p1", "own", "no such name"}});
    CHECK(model[0].value[0] == 0.0F);
    CHECK(model[1].value[0] == static_cast<float>(world.rank()));
    CHECK(counts[0] == 0.0F);
    CHECK(own[0] == static_cast<float>(world.rank()));
    // Marking it does no harm and is not wanted.
    ddp.begin_forward();
    for (const std::size_t index : each_of(2, 1, 1, 0)) {
      ddp.mark_ready(index);
    }
    ddp.finish();
    CHECK(model.is_average(world.size(), 0));
    CHECK(model[1].gradient[3] == toy_model::gradient_of(world.rank(), 1, 3));
    CHECK(model.is_average(world.size(), 2));
    CHECK(own[0] == static_cast<float>(world.rank()));
    // A parameter that only one rank has may be ignored there.
    const distributed_data_parallel other(toy_model(std::vector<std::size_t>(world.rank() == 0 ? 2 : 1, 3)).views(), {},
                                          {.ignore = {"p1"}});
  });
}

/// Constructs with a model that differs on rank `odd`, and expects an error on every rank that says where.
template <class Make>
void expect_different(Make make, const std::string& usual, const std::string& different) {
  for (const int ranks : {2, 3, 8}) {
    for (const int odd : {0, ranks - 1}) {
      run_noted(ranks, "odd is " + std::to_string(odd), [&](const process_group& world) {
        const auto problem = error_of<mismatch_error>([&] { make(world.rank() == odd, world); });
        const int second = odd == 0 ? 1 : odd;
        CHECK(problem.first_rank() == 0);
        CHECK(problem.second_rank() == second);
        CHECK(problem.rank() == world.rank());
        CHECK(problem.operation() == "distributed_data_parallel");
        CHECK_CONTAINS(problem.what(), "ddp_construction_test.cpp:");
        CHECK_CONTAINS(problem.what(), "rank 0 has " + (odd == 0 ? different : usual));
        CHECK_CONTAINS(problem.what(), "rank " + std::to_string(second) + " has " + (odd == 0 ? usual : different));
        check_same_everywhere(problem.detail(), world);
        check_usable(world);
        toy_model same({2, 3});
        const distributed_data_parallel works(same.views(), {}, {}, world);
      });
    }
  }
}

TEST_CASE("ddp: different numbers of elements are a mismatch_error") {
  expect_different(
      [](bool odd, const process_group& world) {
        toy_model model({4, std::size_t{5} + (odd ? 1 : 0)});
        const distributed_data_parallel ddp(model.views(), {}, {}, world);
      },
      "\"p1\" (5 x float32)", "\"p1\" (6 x float32)");
}

TEST_CASE("ddp: different types of the same size are a mismatch_error") {
  expect_different(
      [](bool odd, const process_group& world) {
        toy_parameter<float16> half("w", 4);
        toy_parameter<bfloat16> brain("w", 4);
        const distributed_data_parallel ddp({odd ? half.view() : brain.view()}, {}, {}, world);
      },
      "\"w\" (4 x bfloat16)", "\"w\" (4 x float16)");
}

TEST_CASE("ddp: different names are a mismatch_error") {
  expect_different(
      [](bool odd, const process_group& world) {
        toy_parameter<float> first(odd ? "embedding" : "weight", 2);
        toy_parameter<float> second("bias", 2);
        const distributed_data_parallel ddp({second.view(), first.view()}, {}, {}, world);
      },
      "\"weight\" (2 x float32)", "\"embedding\" (2 x float32)");
}

TEST_CASE("ddp: an additional parameter is a mismatch_error") {
  expect_different(
      [](bool odd, const process_group& world) {
        toy_model model(std::vector<std::size_t>(odd ? 3 : 2, 7));
        const distributed_data_parallel ddp(model.views(), {}, {}, world);
      },
      "nothing", "\"p2\" (7 x float32)");
}

TEST_CASE("ddp: different buffers are a mismatch_error") {
  expect_different(
      [](bool odd, const process_group& world) {
        toy_model model({1});
        std::vector<float> mean(odd ? 3 : 2);
        const distributed_data_parallel ddp(model.views(), {named_buffer("mean", mean)}, {}, world);
      },
      "\"mean\" (a buffer of 8 bytes)", "\"mean\" (a buffer of 12 bytes)");
}

TEST_CASE("ddp: a duplicate name or a gradient of the wrong size is an error on every rank") {
  at_every_size([](const process_group& world) {
    const int odd = world.size() - 1;
    toy_parameter<float> first("same", 2);
    toy_parameter<float> second(world.rank() == odd ? "same" : "other", 2);
    toy_parameter<float> third("third", 4);
    if (world.rank() == odd) {
      third.gradient.resize(5);
    }
    const auto twice = [&] { const distributed_data_parallel ddp({first.view(), second.view()}); };
    const auto uneven = [&] { const distributed_data_parallel ddp({third.view()}); };
    if (world.rank() == odd) {
      CHECK_CONTAINS(error_of<usage_error>(twice).what(), "the same name");
      CHECK_CONTAINS(error_of<usage_error>(uneven).what(), "\"third\" has 4 values, but its gradient has 5 elements");
    } else {
      CHECK_CONTAINS(error_of<peer_error>(twice).what(), "the same name");
      CHECK_CONTAINS(error_of<peer_error>(uneven).what(), "\"third\" has 4 values, but its gradient has 5 elements");
    }
    check_usable(world);
  });
}

TEST_CASE("ddp: buckets are filled from the last parameter, one type each, up to their sizes") {
  toy_parameter<float> a("a", 10);
  toy_parameter<double> b("b", 10);
  toy_parameter<float> c("c", 10);
  toy_parameter<float> d("d", 10);
  const auto count = [&](std::size_t first, std::size_t others) {
    return distributed_data_parallel({a.view(), b.view(), c.view(), d.view()}, {},
                                     {.first_bucket_bytes = first, .bucket_bytes = others})
        .bucket_count();
  };
  CHECK(count(1 << 20, 1 << 20) == 2);
  CHECK(count(40, 80) == 3);  // d | b | c a
  CHECK(count(80, 40) == 3);  // d c | b | a
  CHECK(count(0, 0) == 4);
  CHECK(distributed_data_parallel({}).bucket_count() == 0);
}

TEST_CASE("ddp: it averages over the ranks of its group only") {
  at_every_size([](const process_group& world) {
    const auto half = world.split(world.rank() % 2, -world.rank());
    toy_model model({3, 70'000});
    model[0].value.assign(3, static_cast<float>(world.rank()));
    distributed_data_parallel ddp(model.views(), {}, {}, half);
    CHECK(all_reduce(world.rank(), reduce_op::max, half) == static_cast<int>(model[0].value[2]));
    for (const std::size_t index : each_of(0, 1)) {
      model.set_gradient(half.rank(), index);
      ddp.mark_ready(index);
    }
    ddp.finish();
    CHECK(model.is_average(half.size(), 0));
    CHECK(model.is_average(half.size(), 1));
  });
}

TEST_CASE("ddp: memory at address 0 is an error on every rank") {
  at_every_size([](const process_group& world) {
    const int odd = world.size() - 1;
    const std::span<float> nowhere(static_cast<float*>(nullptr), 4);
    for (const int part : {0, 1, 2}) {
      std::vector<float> value(4);
      std::vector<float> gradient(4);
      std::vector<float> buffer(4);
      const auto place = [&](int which, std::vector<float>& memory) {
        return part == which && world.rank() == odd ? nowhere : std::span(memory);
      };
      const auto construct = [&] {
        const distributed_data_parallel ddp({named_parameter("a", place(0, value), place(1, gradient))},
                                            {named_buffer("b", place(2, buffer))});
      };
      if (world.rank() == odd) {
        const auto problem = error_of<usage_error>(construct);
        CHECK_CONTAINS(problem.what(), "at address 0");
        CHECK_CONTAINS(problem.what(), part == 0   ? "the value of parameter \"a\""
                                       : part == 1 ? "gradient of"
                                                   : "\"b\"");
      } else {
        const auto problem = error_of<peer_error>(construct);
        CHECK(problem.peer() == odd);
        CHECK_CONTAINS(problem.what(), "at address 0");
      }
      check_usable(world);
    }
  });
}

}  // namespace
