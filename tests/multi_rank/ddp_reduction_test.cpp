// SPDX-License-Identifier: MIT
#include "ranks.hpp"
#include "toy_model.hpp"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <optional>
#include <random>

#include <hfcomm/ddp.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

const std::vector<std::size_t> model_sizes{10, 1, 0, 300, 7, 5'000, 70'000, 2};

/// One backward pass, the gradients becoming ready in `order`.
void backward(toy_model& model, distributed_data_parallel& ddp, int rank, const std::vector<std::size_t>& order,
              int pass = 0) {
  ddp.begin_forward();
  for (const std::size_t index : order) {
    model.set_gradient(rank, index, pass);
    ddp.mark_ready(index);
  }
}

std::vector<std::size_t> forwards(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

TEST_CASE("ddp: averages have the same bits whatever the buckets and the order") {
  at_every_size([](const process_group& world) {
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{64}, std::size_t{30'000}, std::size_t{25} << 20}) {
      for (const bool find_unused : {false, true}) {
        toy_model model(model_sizes);
        distributed_data_parallel ddp(
            model.views(), {},
            {.first_bucket_bytes = bytes / 2, .bucket_bytes = bytes, .find_unused_parameters = find_unused});
        CHECK(ddp.bucket_count() >= (bytes == 1 ? 7U : 1U));
        std::mt19937 random(static_cast<unsigned>(world.rank()));
        auto order = forwards(model.size());
        for (int pass = 0; pass < 4; ++pass) {
          // Forwards, backwards, and in another order on every rank.
          pass == 1 ? std::reverse(order.begin(), order.end()) : std::shuffle(order.begin(), order.end(), random);
          backward(model, ddp, world.rank(), order, pass);
          ddp.finish();
          for (std::size_t index = 0; index < model.size(); ++index) {
            CHECK_MESSAGE(model.is_average(world.size(), index, pass), "parameter ", index, " in pass ", pass,
                          " with buckets of ", bytes, " bytes");
          }
        }
      }
    }
    check_usable(world);
  });
}

TEST_CASE("ddp: one model may hold float, double and 16-bit floats") {
  at_every_size([](const process_group& world) {
    toy_parameter<float> a("a", 100);
    toy_parameter<double> b("b", 30);
    toy_parameter<bfloat16> c("c", 50);
    toy_parameter<float> d("d", 20);
    toy_parameter<float16> e("e", 3);
    toy_parameter<double> f("f", 40'000);
    std::vector<ddp_parameter> views{a.view(), b.view(), c.view(), d.view(), e.view(), f.view()};
    distributed_data_parallel ddp(std::move(views), {}, {.first_bucket_bytes = 100, .bucket_bytes = 1000});
    const auto fill = [&]<class T>(toy_parameter<T>& parameter) {
      for (std::size_t i = 0; i < parameter.gradient.size(); ++i) {
        parameter.gradient[i] = T(static_cast<float>(static_cast<int>(i % 10) + world.rank() * 2));
      }
      ddp.mark_ready(parameter.name);
    };
    fill(f), fill(c), fill(a), fill(e), fill(d), fill(b);
    ddp.finish();
    const auto check = [&]<class T>(const toy_parameter<T>& parameter) {
      bool equal = true;
      for (std::size_t i = 0; i < parameter.gradient.size(); ++i) {
        equal = equal && static_cast<double>(parameter.gradient[i]) == static_cast<double>(i % 10) + world.size() - 1;
      }
      CHECK_MESSAGE(equal, "parameter ", parameter.name);
    };
    check(a), check(b), check(c), check(d), check(e), check(f);
  });
}

TEST_CASE("ddp: marking does not wait for other ranks or occupy the group") {
  std::atomic<bool> marked{false};
  run_noted(2, {}, [&](const process_group& world) {
    toy_model model(model_sizes);
    distributed_data_parallel ddp(model.views(), {}, {.first_bucket_bytes = 1, .bucket_bytes = 1});
    if (world.rank() == 1) {
      wait_until([&] { return marked.load(); });
    }
    backward(model, ddp, world.rank(), forwards(model.size()));
    marked = true;
    CHECK(all_reduce(1) == 2);
    ddp.finish();
    for (std::size_t index = 0; index < model.size(); ++index) {
      CHECK(model.is_average(2, index));
    }
  });
}

TEST_CASE("ddp: each forward broadcasts rank 0's buffers, unless that is off") {
  at_every_size([](const process_group& world) {
    for (const bool on : {true, false}) {
      toy_model model({3});
      std::vector<double> mean(4, world.rank());
      std::vector<int> count(1, world.rank());
      distributed_data_parallel ddp(model.views(), {named_buffer("mean", mean), named_buffer("count", count)},
                                    {.broadcast_chunk_bytes = 5, .broadcast_buffers = on});
      CHECK(mean[3] == 0.0);
      for (int pass = 1; pass < 4; ++pass) {
        std::fill(mean.begin(), mean.end(), pass * 100.0 + world.rank());
        count[0] = pass * 100 + world.rank();
        ddp.begin_forward();
        CHECK((mean == std::vector<double>(4, pass * 100.0 + (on ? 0 : world.rank()))));
        CHECK(count[0] == pass * 100 + (on ? 0 : world.rank()));
        model.set_gradient(world.rank(), 0, pass);
        ddp.mark_ready(std::size_t{0});
        ddp.finish();
        CHECK(model.is_average(world.size(), 0, pass));
      }
    }
  });
}

TEST_CASE("ddp: unused parameters count as zero, and one that no rank used is unchanged") {
  at_every_size([](const process_group& world) {
    for (const std::size_t bytes : each_of(1, 100, 1'000'000)) {
      toy_model model({4, 5, 70'000, 7});
      distributed_data_parallel ddp(
          model.views(), {}, {.first_bucket_bytes = bytes, .bucket_bytes = bytes, .find_unused_parameters = true});
      for (int pass = 0; pass < 3; ++pass) {
        // 0: used everywhere, 1: nowhere, 2: by rank 0 alone, 3: by all but rank 0.
        for (std::size_t index = 0; index < model.size(); ++index) {
          std::fill(model[index].gradient.begin(), model[index].gradient.end(), 8.0F);
        }
        ddp.begin_forward();
        if (world.rank() != 0) {
          ddp.mark_ready("p3");
        }
        ddp.mark_ready("p0");
        if (world.rank() == 0) {
          ddp.mark_ready("p2");
        }
        ddp.finish();
        const auto n = static_cast<float>(world.size());
        CHECK((model[0].gradient == std::vector<float>(4, 8.0F)));
        CHECK((model[1].gradient == std::vector<float>(5, 8.0F)));
        CHECK((model[2].gradient == std::vector<float>(70'000, 8.0F / n)));
        CHECK((model[3].gradient == std::vector<float>(7, world.size() == 1 ? 8.0F : 8.0F * (n - 1.0F) / n)));
      }
      // Nothing at all.
      ddp.finish();
      CHECK(model[0].gradient[0] == 8.0F);
    }
  });
}

TEST_CASE("ddp: a model may be empty or have empty parameters") {
  at_every_size([](const process_group& world) {
    for (const bool find_unused : {false, true}) {
      distributed_data_parallel none({}, {}, {.find_unused_parameters = find_unused});
      none.begin_forward();
      none.finish();
      toy_model model({0, 0});
      distributed_data_parallel empty(model.views(), {}, {.find_unused_parameters = find_unused});
      empty.mark_ready("p0");
      empty.mark_ready("p1");
      empty.finish();
    }
    check_usable(world);
  });
}

TEST_CASE("ddp: without init a pass changes nothing") {
  toy_model model({3, 4});
  std::vector<int> buffer{5};
  distributed_data_parallel ddp(model.views(), {named_buffer("buffer", buffer)});
  backward(model, ddp, 0, {1, 0});
  ddp.finish();
  CHECK(model.is_average(1, 0));
  CHECK(model.is_average(1, 1));
  CHECK(buffer[0] == 5);
}

TEST_CASE("ddp: several models may be averaged at once") {
  at_every_size([](const process_group& world) {
    toy_model generator(model_sizes);
    toy_model critic({100, 200});
    distributed_data_parallel first(generator.views());
    std::optional<distributed_data_parallel> second(std::in_place, critic.views());
    for (int pass = 0; pass < 3; ++pass) {
      backward(generator, first, world.rank(), forwards(generator.size()), pass);
      backward(critic, *second, world.rank(), {1, 0}, pass);
      if (world.rank() % 2 == 0) {
        first.finish();
        second->finish();
      } else {
        second->finish();
        first.finish();
      }
      CHECK(generator.is_average(world.size(), 6, pass));
      CHECK(critic.is_average(world.size(), 1, pass));
    }
    second.reset();
    backward(generator, first, world.rank(), forwards(generator.size()), 3);
    first.finish();
    CHECK(generator.is_average(world.size(), 6, 3));
  });
}

}  // namespace
