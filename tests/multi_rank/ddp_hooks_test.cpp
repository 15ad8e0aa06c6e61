// SPDX-License-Identifier: MIT
#include "ranks.hpp"
#include "toy_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/ddp.hpp>
#include <hfcomm/ddp/power_sgd.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// A model of one vector of values for each count, and gradients in the memory of distributed_data_parallel.
template <class T>
struct shaped_model {
  explicit shaped_model(std::vector<tensor_layout> of) : layouts(std::move(of)) {
    for (const auto& layout : layouts) {
      std::int64_t count = 1;
      for (const std::int64_t size : layout.sizes) {
        count *= size;
      }
      values.emplace_back(static_cast<std::size_t>(count));
    }
  }
  [[nodiscard]] std::vector<ddp_parameter> views() {
    std::vector<ddp_parameter> all;
    for (std::size_t index = 0; index < values.size(); ++index) {
      all.push_back(named_parameter('p' + std::to_string(index), values[index]));
      all.back().layout = layouts[index];
    }
    return all;
  }
  std::vector<tensor_layout> layouts;
  std::vector<std::vector<T>> values;
};

const std::vector<tensor_layout> small_layouts{{{10}}, {{20, 30}}, {{7}}, {{3, 4, 5}}};

const std::vector<tensor_layout> one_vector{{{10}}};

/// The gradient of an element: small integers, whose sums are exact in 16 bits.
float gradient_of(int rank, std::size_t index, std::size_t element, int pass) {
  return static_cast<float>((static_cast<std::size_t>(rank) * 4 + index + element + static_cast<std::size_t>(pass)) %
                            16);
}

float sum_of(int ranks, std::size_t index, std::size_t element, int pass) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    sum += gradient_of(rank, index, element, pass);
  }
  return sum;
}

/// Runs a pass, and calls `check(gradients, index, element)` for each averaged element.
template <class T, class Check>
void run_pass(distributed_data_parallel& ddp, const shaped_model<T>& model, int rank, int pass, const Check& check) {
  ddp.begin_forward();
  for (std::size_t index = model.values.size(); index-- > 0;) {
    const auto gradient = ddp.gradient<T>(index);
    for (std::size_t element = 0; element < gradient.size(); ++element) {
      gradient[element] = T(gradient_of(rank, index, element, pass));
    }
    ddp.mark_ready(index);
  }
  ddp.finish();
  for (std::size_t index = 0; index < model.values.size(); ++index) {
    const auto gradient = ddp.gradient<T>(index);
    for (std::size_t element = 0; element < gradient.size(); ++element) {
      check(gradient[element], index, element);
    }
  }
}

TEST_CASE("ddp hooks: a hook gets each bucket once, in order, with its gradients, and its result is taken") {
  at_every_size([](const process_group& world) {
    for (const bool on_calling_thread : {false, true}) {
      std::vector<std::pair<std::uint64_t, std::size_t>> calls;
      std::map<std::string, std::size_t> counts;
      const auto hook = [&](gradient_bucket bucket) -> work<void> {
        calls.emplace_back(bucket.pass(), bucket.index());
        std::size_t next = 0;
        for (const auto& one : bucket.gradients()) {
          CHECK(one.begin == next);
          next += one.count;
          counts[one.name] = one.count;
          CHECK(!one.layout.sizes.empty());
        }
        CHECK(bucket.elements<float>().size() == next);
        CHECK(bucket.divisor() == world.size());
        CHECK(!bucket.on_device());
        co_await bucket.average();
        for (float& one : bucket.elements<float>()) {
          one += 1000;
        }
      };
      shaped_model<float> model(small_layouts);
      distributed_data_parallel ddp(model.views(), {},
                                    {.first_bucket_bytes = 100,
                                     .bucket_bytes = 2'000,
                                     .rebuild_buckets = false,
                                     .reduce_on_calling_thread = on_calling_thread,
                                     .hook = hook});
      const float added = world.size() == 1 ? 0 : 1000;  // no hook in a group of one
      for (int pass = 0; pass < 3; ++pass) {
        run_pass(ddp, model, world.rank(), pass, [&](float got, std::size_t index, std::size_t element) {
          const float average = sum_of(world.size(), index, element, pass) / static_cast<float>(world.size());
          CHECK(got == average + added);
        });
      }
      std::vector<std::pair<std::uint64_t, std::size_t>> wanted;
      for (std::uint64_t pass = 1; world.size() > 1 && pass <= 3; ++pass) {
        for (std::size_t index = 0; index < ddp.bucket_count(); ++index) {
          wanted.emplace_back(pass, index);
        }
      }
      CHECK(calls == wanted);
      CHECK(counts.size() == (world.size() == 1 ? 0 : small_layouts.size()));
    }
    check_usable(world);
  });
}

TEST_CASE("ddp hooks: an exception of a hook ends the pass on all ranks, and the next pass is right") {
  run_ranks(3, [](const process_group& world) {
    bool fails = true;
    std::size_t call = 0;
    for (const std::size_t failing : each_of(std::size_t{0}, std::size_t{1}, std::size_t{2})) {
      call = 0;
      fails = true;
      const auto hook = [&](gradient_bucket bucket) -> work<void> {
        const bool is_mine = fails && world.rank() == 1;
        if (is_mine && call == failing) {
          throw std::runtime_error("no memory for the hook");
        }
        ++call;
        co_await bucket.average();
      };
      shaped_model<float> model({{{10}}, {{20}}, {{7}}});
      distributed_data_parallel ddp(model.views(), {}, {.first_bucket_bytes = 1, .bucket_bytes = 1, .hook = hook});
      const auto pass = [&] { run_pass(ddp, model, world.rank(), 0, [](float, std::size_t, std::size_t) {}); };
      if (world.rank() == 1) {
        CHECK_THROWS_WITH_AS(pass(), "no memory for the hook", std::runtime_error);
      } else {
        CHECK(contains(error_of<peer_error>(pass).what(), "no memory for the hook"));
      }
      fails = false;
      run_pass(ddp, model, world.rank(), 1, [&](float got, std::size_t index, std::size_t element) {
        CHECK(got == sum_of(3, index, element, 1) / 3);
      });
    }
    check_usable(world);
  });
}

TEST_CASE("ddp hooks: an exception after the last bucket's average ends the pass on all ranks") {
  run_ranks(2, [](const process_group& world) {
    bool fails = world.rank() == 0;
    const auto hook = [&](gradient_bucket bucket) -> work<void> {
      co_await bucket.average();
      if (std::exchange(fails, false)) {
        throw std::runtime_error("too late");
      }
    };
    shaped_model<float> model(one_vector);
    distributed_data_parallel ddp(model.views(), {}, {.hook = hook});
    const auto pass = [&] { run_pass(ddp, model, world.rank(), 0, [](float, std::size_t, std::size_t) {}); };
    if (world.rank() == 0) {
      CHECK_THROWS_WITH_AS(pass(), "too late", std::runtime_error);
    } else {
      CHECK(contains(error_of<peer_error>(pass).what(), "too late"));
    }
    CHECK_NOTHROW(pass());
    check_usable(world);
  });
}

TEST_CASE("ddp hooks: elements of another type are a usage_error on all ranks") {
  run_ranks(2, [](const process_group& world) {
    const auto hook = [](gradient_bucket bucket) -> work<void> { co_await bucket.average(bucket.elements<double>()); };
    shaped_model<float> model(one_vector);
    distributed_data_parallel ddp(model.views(), {}, {.hook = hook});
    const auto pass = [&] { run_pass(ddp, model, world.rank(), 0, [](float, std::size_t, std::size_t) {}); };
    CHECK(contains(error_of<usage_error>(pass).what(), "the bucket's gradients are of type float32, not float64"));
  });
}

TEST_CASE_TEMPLATE("ddp hooks: 16-bit compression gives the average, rounded", Narrow, float16, bfloat16) {
  at_every_size([](const process_group& world) {
    const auto check = [&]<class T>(shaped_model<T> model) {
      distributed_data_parallel ddp(model.views(), {}, {.hook = compress_gradients<Narrow>()});
      run_pass(ddp, model, world.rank(), 0, [&](T got, std::size_t index, std::size_t element) {
        const float average = sum_of(world.size(), index, element, 0) / static_cast<float>(world.size());
        const float wanted = sizeof(T) == 2 ? static_cast<float>(T(average)) : static_cast<float>(Narrow(average));
        CHECK(static_cast<float>(got) == (world.size() == 1 ? average : wanted));
      });
    };
    check(shaped_model<float>(small_layouts));
    check(shaped_model<double>(small_layouts));
    check(shaped_model<bfloat16>(small_layouts));
  });
}

TEST_CASE("ddp hooks: in a join scope an average is that of the ranks with data") {
  run_ranks(3, [](const process_group& world) {
    shaped_model<float> model(small_layouts);
    distributed_data_parallel ddp(model.views(), {}, {.hook = compress_gradients<float16>()});
    join_scope joined(ddp, {.divisor = divide_by::live_ranks});
    for (int pass = 0; pass <= world.rank(); ++pass) {
      run_pass(ddp, model, world.rank(), pass, [&](float got, std::size_t index, std::size_t element) {
        float sum = 0;
        for (int rank = pass; rank < 3; ++rank) {
          sum += gradient_of(rank, index, element, pass);
        }
        CHECK(got == static_cast<float>(float16(sum / static_cast<float>(3 - pass))));
      });
    }
    joined.finish();
  });
}

TEST_CASE("ddp hooks: power_sgd is exact for matrices of low rank, and for what it does not compress") {
  at_every_size([](const process_group& world) {
    const auto check = [&]<class T>(shaped_model<T> model, double tolerance) {
      distributed_data_parallel ddp(model.views(), {},
                                    {.hook = power_sgd({.matrix_rank = 2, .first_pass = 2, .seed = 7})});
      for (int pass = 0; pass < 4; ++pass) {
        ddp.begin_forward();
        for (std::size_t index = 0; index < model.values.size(); ++index) {
          const auto gradient = ddp.gradient<T>(index);
          for (std::size_t i = 0; i < gradient.size(); ++i) {  // row + rank * column: two factors suffice
            gradient[i] = static_cast<T>(i / 30 + static_cast<std::size_t>(world.rank()) * (i % 30)) + T(pass);
          }
          ddp.mark_ready(index);
        }
        ddp.finish();
        const double mean_rank = (world.size() - 1) / 2.0;
        for (std::size_t index = 0; index < model.values.size(); ++index) {
          const auto gradient = ddp.gradient<T>(index);
          for (std::size_t i = 0; i < gradient.size(); ++i) {
            const double wanted = static_cast<double>(i / 30) + mean_rank * static_cast<double>(i % 30) + pass;
            CHECK(std::abs(static_cast<double>(gradient[i]) - wanted) <= tolerance * (1 + std::abs(wanted)));
          }
        }
      }
    };
    check(shaped_model<float>({{{20, 30}}, {{30}}, {{4, 5, 6}, {30, 6, 1}}}), 2e-4);
    check(shaped_model<double>({{{20, 30}}, {{30}}}), 1e-9);
  });
}

TEST_CASE("ddp hooks: power_sgd gives all ranks the same bits, and feeds its error back") {
  run_ranks(2, [](const process_group& world) {
    const auto mean_error = [&](bool feedback) {
      shaped_model<float> model(std::vector{tensor_layout{{63, 47}}});
      distributed_data_parallel ddp(
          model.views(), {},
          {.hook = power_sgd({.matrix_rank = 1, .first_pass = 1, .uses_error_feedback = feedback, .seed = 3})});
      std::vector<double> sum(63 * 47);
      std::vector<double> wanted(63 * 47);
      constexpr int passes = 60;
      for (int pass = 0; pass < passes; ++pass) {
        std::size_t number = 0;
        run_pass(ddp, model, world.rank(), 0, [&](float got, std::size_t index, std::size_t element) {
          sum[number] += static_cast<double>(got);
          wanted[number++] += static_cast<double>(sum_of(2, index, element, 0)) / 2;
        });
        const auto gradient = ddp.gradient<float>(0);
        const auto all = all_gather(std::vector<float>(gradient.begin(), gradient.end()), world);
        CHECK(all[0] == all[1]);
      }
      double error = 0;
      for (std::size_t i = 0; i < sum.size(); ++i) {
        error += std::abs(sum[i] - wanted[i]) / passes;
      }
      return error / static_cast<double>(sum.size());
    };
    const double with_feedback = mean_error(true);
    const double without = mean_error(false);
    CHECK(with_feedback < 0.5 * without);
  });
}

/// Runs a pass in which all gradients of this rank have this value, and returns the first element of the first average.
template <class T>
T average_of(distributed_data_parallel& ddp, const shaped_model<T>& model, T value) {
  ddp.begin_forward();
  for (std::size_t index = 0; index < model.values.size(); ++index) {
    std::ranges::fill(ddp.gradient<T>(index), value);
    ddp.mark_ready(index);
  }
  ddp.finish();
  return ddp.gradient<T>(0)[0];
}

const std::vector<tensor_layout> one_matrix{{{20, 30}}};

TEST_CASE("ddp hooks: power_sgd goes on after a gradient of zeros, and after one that is not finite") {
  run_ranks(2, [](const process_group& world) {
    shaped_model<float> model(one_matrix);
    distributed_data_parallel ddp(model.views(), {}, {.hook = power_sgd({.first_pass = 1})});
    CHECK(average_of(ddp, model, 0.0F) == 0.0F);
    CHECK(average_of(ddp, model, 1.0F) == doctest::Approx(1));
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      CHECK(std::isnan(average_of(ddp, model, world.rank() == 0 ? bad : 1.0F)));
      CHECK(average_of(ddp, model, 1.0F) == doctest::Approx(1));
    }
  });
}

TEST_CASE("ddp hooks: power_sgd is exact where a gradient has a lower rank than the factors") {
  run_ranks(2, [](const process_group& world) {
    for (const std::size_t matrix_rank : each_of(1, 2, 4)) {
      shaped_model<float> model(std::vector{tensor_layout{{100, 120}}});
      distributed_data_parallel ddp(model.views(), {},
                                    {.hook = power_sgd({.matrix_rank = matrix_rank, .first_pass = 1})});
      for (int pass = 0; pass < 20; ++pass) {
        ddp.begin_forward();
        const auto gradient = ddp.gradient<float>(0);
        for (std::size_t i = 0; i < gradient.size(); ++i) {
          gradient[i] = std::sin(static_cast<float>(i / 120)) * static_cast<float>(i % 120 + 1) *
                        static_cast<float>(world.rank() + 1);
        }
        ddp.mark_ready(0);
        ddp.finish();
        float worst = 0;
        for (std::size_t i = 0; i < gradient.size(); ++i) {
          const float wanted = std::sin(static_cast<float>(i / 120)) * static_cast<float>(i % 120 + 1) * 1.5F;
          worst = std::max(worst, std::abs(gradient[i] - wanted));
        }
        CHECK(worst < 1e-3F);
      }
    }
  });
}

TEST_CASE("ddp hooks: power_sgd averages over the ranks that a join scope counts") {
  run_ranks(2, [](const process_group& world) {
    shaped_model<float> model(one_matrix);
    distributed_data_parallel ddp(model.views(), {}, {.hook = power_sgd({.first_pass = 1})});
    join_scope joined(ddp, {.divisor = divide_by::live_ranks});
    for (int pass = 0; pass < (world.rank() == 0 ? 6 : 2); ++pass) {
      CHECK(average_of(ddp, model, 1.0F) == doctest::Approx(1));
    }
    joined.finish();
  });
}

TEST_CASE("ddp hooks: power_sgd keeps nothing of a pass that failed") {
  run_ranks(2, [](const process_group& world) {
    shaped_model<float> model(one_matrix);
    distributed_data_parallel ddp(model.views(), {}, {.hook = power_sgd({.first_pass = 1})});
    if (world.rank() == 0) {
      CHECK_THROWS_AS(average_of(ddp, model, 100.0F), peer_error);
    } else {
      ddp.begin_forward();
      ddp.abandon_pass("this batch is bad");
    }
    CHECK(average_of(ddp, model, 1.0F) == doctest::Approx(1));
  });
}

TEST_CASE("ddp hooks: power_sgd averages a gradient exactly whose layout has another number of elements") {
  run_ranks(2, [](const process_group& world) {
    shaped_model<float> model(std::vector{tensor_layout{{610}}});
    auto views = model.views();
    views[0].layout = {{20, 30}};
    distributed_data_parallel ddp(views, {}, {.hook = power_sgd({.first_pass = 1})});
    average_of(ddp, model, static_cast<float>(world.rank()));
    CHECK(std::ranges::count(ddp.gradient<float>(0), 0.5F) == 610);
  });
}

TEST_CASE("ddp hooks: power_sgd with factors of no columns, or larger than the gradients, is a usage_error") {
  CHECK_THROWS_AS((void)power_sgd({.matrix_rank = 0}), usage_error);
  CHECK_THROWS_AS((void)power_sgd({.least_compression = 0.5}), usage_error);
}

TEST_CASE("ddp hooks: a pass that a rank abandons after its last mark is averaged on the others") {
  run_ranks(2, [](const process_group& world) {
    std::vector<float> buffer(3);
    shaped_model<float> model(one_vector);
    distributed_data_parallel ddp(model.views(), {named_buffer("buffer", buffer)},
                                  {.hook = compress_gradients<float16>()});
    if (world.rank() == 0) {
      CHECK(average_of(ddp, model, 1.0F) == 1.0F);
    } else {
      ddp.begin_forward();
      std::ranges::fill(ddp.gradient<float>(0), 1.0F);
      ddp.mark_ready(0);
      ddp.abandon_pass("it changed its mind");
    }
    CHECK(average_of(ddp, model, 2.0F) == 2.0F);
    check_usable(world);
  });
}

TEST_CASE("ddp hooks: an error of hfcomm on one rank, and one that a hook replaces, end the pass on all") {
  run_ranks(2, [](const process_group& world) {
    enum class way { good, wrong_type, replaced };
    way how = way::good;
    const auto hook = [&](gradient_bucket bucket) -> work<void> {
      if (how == way::wrong_type && world.rank() == 1) {
        (void)bucket.elements<double>();
      }
      try {
        if (how == way::replaced && world.rank() == 1) {
          throw std::runtime_error("the disk is full");
        }
        co_await bucket.average();
      } catch (const peer_error&) {
        throw std::logic_error("replaced");
      }
    };
    shaped_model<float> model(one_vector);
    distributed_data_parallel ddp(model.views(), {}, {.hook = hook});
    for (const way next : {way::wrong_type, way::good, way::replaced, way::good, way::good}) {
      how = next;
      if (how == way::good) {
        CHECK(average_of(ddp, model, 1.0F) == 1.0F);
      } else {
        CHECK_THROWS(average_of(ddp, model, 1.0F));
      }
    }
    check_usable(world);
  });
}

TEST_CASE("ddp hooks: a hook is called as its rank") {
  run_ranks(2, [](const process_group& world) {
    for (const bool on_calling_thread : {false, true}) {
      const auto hook = [&](gradient_bucket bucket) -> work<void> {
        CHECK(hfcomm::rank() == world.rank());
        co_await bucket.average();
        CHECK(hfcomm::rank() == world.rank());
      };
      shaped_model<float> model(one_vector);
      distributed_data_parallel ddp(model.views(), {}, {.reduce_on_calling_thread = on_calling_thread, .hook = hook});
      CHECK(average_of(ddp, model, 1.0F) == 1.0F);
    }
  });
}

TEST_CASE("ddp hooks: local_sgd averages over all ranks first, then over the subgroup") {
  run_ranks(4, [](const process_group& world) {
    const auto half = world.split(world.rank() / 2, world.rank());
    shaped_model<float> model(small_layouts);
    distributed_data_parallel ddp(model.views(), {}, {.hook = local_sgd(half, 3)});
    for (int pass = 0; pass < 4; ++pass) {
      run_pass(ddp, model, world.rank(), pass, [&](float got, std::size_t index, std::size_t element) {
        const int first = world.rank() / 2 * 2;
        const float local = gradient_of(first, index, element, pass) + gradient_of(first + 1, index, element, pass);
        CHECK(got == (pass < 2 ? sum_of(4, index, element, pass) / 4 : local / 2));
      });
    }
    check_usable(world);
  });
}

TEST_CASE("periodic_averager: averages the values in each period-th step after the first ones") {
  at_every_size([](const process_group& world) {
    shaped_model<float> model({{{100}}, {{3}}});
    periodic_averager averager(model.views(), 2, 3);
    std::vector<bool> averaged;
    for (int step = 0; step < 8; ++step) {
      for (auto& values : model.values) {
        std::ranges::fill(values, static_cast<float>(2 * world.rank()));
      }
      averaged.push_back(averager.step());
      const auto wanted = static_cast<float>(averaged.back() ? world.size() - 1 : 2 * world.rank());
      for (const auto& values : model.values) {
        CHECK(std::ranges::count(values, wanted) == static_cast<std::ptrdiff_t>(values.size()));
      }
    }
    CHECK(averaged == std::vector<bool>{false, false, false, false, true, false, true, false});
    CHECK_THROWS_AS(periodic_averager(model.views(), 0), usage_error);
  });
}

}  // namespace
