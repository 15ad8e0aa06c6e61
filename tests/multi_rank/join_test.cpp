// SPDX-License-Identifier: MIT
#include "ranks.hpp"
#include "toy_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <hfcomm/ddp.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

const std::vector<std::size_t> join_sizes{3, 0, 20'000, 9};

/// How many batches each rank has.
struct shards {
  const char* name;
  int (*of)(int rank, int ranks);
  [[nodiscard]] std::vector<int> counts(int ranks) const {
    std::vector<int> all;
    for (int rank = 0; rank < ranks; ++rank) {
      all.push_back(of(rank, ranks));
    }
    return all;
  }
};
constexpr std::array all_shards{
    shards{"even", [](int, int) { return 3; }},
    shards{"none at all", [](int, int) { return 0; }},
    shards{"rank 0 has none", [](int rank, int) { return rank; }},
    shards{"the last rank has none", [](int rank, int ranks) { return ranks - 1 - rank; }},
    shards{"only the last rank has some", [](int rank, int ranks) { return rank + 1 == ranks ? 5 : 0; }},
    shards{"very uneven", [](int rank, int) { return rank % 3 == 1 ? 9 : rank % 3; }},
};

/// The gradient of a batch. It depends on the parameters, so that every difference stays visible.
float gradient_of(float value, int rank, std::size_t index, std::size_t i, int pass) {
  const float decay = 0.25F * value;
  return toy_model::gradient_of(rank, index, i, pass) - decay;
}
float updated(float value, float gradient) {
  const float change = 0.1F * gradient;
  return value - change;
}

void set_gradients(toy_model& model, int rank, int pass) {
  for (std::size_t index = 0; index < model.size(); ++index) {
    for (std::size_t i = 0; i < join_sizes[index]; ++i) {
      model[index].gradient[i] = gradient_of(model[index].value[i], rank, index, i, pass);
    }
  }
}
void optimize(toy_model& model) {
  for (std::size_t index = 0; index < model.size(); ++index) {
    for (std::size_t i = 0; i < join_sizes[index]; ++i) {
      model[index].value[i] = updated(model[index].value[i], model[index].gradient[i]);
    }
  }
}
void mark_all(toy_model& model, distributed_data_parallel& ddp) {
  for (std::size_t index = model.size(); index-- > 0;) {
    ddp.mark_ready(index);
  }
}

/// Trains in one process as all ranks do together. `buffer` gets that of the last pass's lowest rank with data.
std::vector<std::vector<float>> train_alone(const std::vector<int>& counts, divide_by divisor, double& buffer) {
  std::vector<std::vector<float>> values;
  for (std::size_t index = 0; index < join_sizes.size(); ++index) {
    values.emplace_back(join_sizes[index], 1.0F);
  }
  int leader = 0;
  for (int pass = 0; pass < *std::max_element(counts.begin(), counts.end()); ++pass) {
    std::vector<int> live;
    for (int rank = 0; rank < static_cast<int>(counts.size()); ++rank) {
      if (counts[as_index(rank)] > pass) {
        live.push_back(rank);
      }
    }
    buffer += pass == 0 ? 0 : live.front() + pass * 10;  // what that rank added in the pass before
    leader = live.front();
    const auto by = static_cast<float>(divisor == divide_by::live_ranks ? live.size() : counts.size());
    for (std::size_t index = 0; index < join_sizes.size(); ++index) {
      for (std::size_t i = 0; i < join_sizes[index]; ++i) {
        float& value = values[index][i];
        std::vector<float> gradients(counts.size(), -0.0F);
        for (const int rank : live) {
          gradients[as_index(rank)] = gradient_of(value, rank, index, i, pass);
        }
        const float sum = combine_in_tree(std::span<const float>(gradients), std::plus<>());
        value = updated(value, sum / by);
      }
    }
  }
  const int passes = *std::max_element(counts.begin(), counts.end());
  buffer += passes == 0 ? 0 : leader + passes * 10;
  return values;
}

bool equal_bits(toy_model& model, const std::vector<std::vector<float>>& expected) {
  for (std::size_t index = 0; index < model.size(); ++index) {
    if (join_sizes[index] != 0 &&
        std::memcmp(model[index].value.data(), expected[index].data(), join_sizes[index] * 4) != 0) {
      return false;
    }
  }
  return true;
}

/// Checks that the group and ddp still work.
void check_trains(toy_model& model, distributed_data_parallel& ddp, const process_group& world) {
  check_usable(world);
  ddp.begin_forward();
  for (std::size_t index = model.size(); index-- > 0;) {
    model.set_gradient(world.rank(), index, 7);
    ddp.mark_ready(index);
  }
  ddp.finish();
  for (std::size_t index = 0; index < model.size(); ++index) {
    CHECK(model.is_average(world.size(), index, 7));
  }
}

TEST_CASE("join: uneven shards give every rank the bits of a single process") {
  for (const shards& shares : all_shards) {
    for (const divide_by divisor : {divide_by::initial_world, divide_by::live_ranks}) {
      for (const bool find_unused : {false, true}) {
        INFO(shares.name, find_unused ? ", finding unused parameters" : "");
        at_every_size([&](const process_group& world) {
          const auto counts = shares.counts(world.size());
          double expected_buffer = 0.0;
          const auto expected = train_alone(counts, divisor, expected_buffer);
          toy_model model(join_sizes);
          for (std::size_t index = 0; index < model.size(); ++index) {
            model[index].value.assign(join_sizes[index], 1.0F);
          }
          std::vector<double> buffer(1);
          distributed_data_parallel ddp(
              model.views(), {named_buffer("buffer", buffer)},
              {.first_bucket_bytes = 1, .bucket_bytes = 64, .find_unused_parameters = find_unused});
          const int mine = counts[as_index(world.rank())];
          join_scope scope(ddp, {.divisor = divisor});
          for (int pass = 0; pass < mine; ++pass) {
            ddp.begin_forward();
            set_gradients(model, world.rank(), pass);
            mark_all(model, ddp);
            buffer[0] += world.rank() + (pass + 1) * 10;
            ddp.finish();
            optimize(model);
          }
          scope.finish();
          CHECK(equal_bits(model, expected));
          CHECK(buffer[0] == expected_buffer);
          check_trains(model, ddp, world);
        });
      }
    }
  }
}

TEST_CASE("join: an optimizer that also steps on ranks without data needs no final synchronization") {
  for (const divide_by divisor : {divide_by::initial_world, divide_by::live_ranks}) {
    at_every_size([&](const process_group& world) {
      const auto counts = all_shards[5].counts(world.size());
      double ignored = 0.0;
      const auto expected = train_alone(counts, divisor, ignored);
      toy_model model(join_sizes);
      for (std::size_t index = 0; index < model.size(); ++index) {
        model[index].value.assign(join_sizes[index], 1.0F);
      }
      distributed_data_parallel ddp(model.views());
      int shadowed = 0;
      const int mine = counts[as_index(world.rank())];
      run_joined(ddp,
                 {.divisor = divisor,
                  .synchronize_final_model = false,
                  .on_shadow =
                      [&] {
                        optimize(model);
                        ++shadowed;
                      }},
                 [&] {
                   for (int pass = 0; pass < mine; ++pass) {
                     ddp.begin_forward();
                     set_gradients(model, world.rank(), pass);
                     mark_all(model, ddp);
                     ddp.finish();
                     optimize(model);
                   }
                 });
      CHECK(shadowed == *std::max_element(counts.begin(), counts.end()) - mine);
      CHECK(equal_bits(model, expected));
      check_trains(model, ddp, world);
    });
  }
}

TEST_CASE("join: without the final synchronization a rank keeps its last model with data") {
  at_every_size(
      [](const process_group& world) {
        for (const bool on : {true, false}) {
          toy_model model({2});
          std::vector<int> buffer(1);
          distributed_data_parallel ddp(model.views(), {named_buffer("buffer", buffer)}, {.broadcast_buffers = on});
          buffer[0] = world.rank();
          join_scope scope(ddp, {.synchronize_final_model = on});
          if (world.rank() == 1) {
            ddp.begin_forward();
            CHECK(buffer[0] == 1);
            ddp.mark_ready("p0");
            ddp.finish();
            model[0].value.assign(2, 3.0F);
          }
          scope.finish();
          CHECK(model[0].value[0] == (on || world.rank() == 1 ? 3.0F : 0.0F));
          CHECK(buffer[0] == (on ? 1 : world.rank()));
        }
      },
      2);
}

/// The gradients of `live` ranks, averaged by hand as floats that are rounded once.
template <class T>
void check_narrow(const process_group& world) {
  constexpr std::size_t count = 70'000;
  const auto element = [](int rank, std::size_t i) {
    const float magnitude = i % 5 == 0 ? 40'000.0F : 0.37F;
    return T(i % 7 == 0 ? -0.0F : magnitude * static_cast<float>(rank + 1 + static_cast<int>(i % 3)) / 3.0F);
  };
  toy_parameter<T> parameter("p", count);
  toy_parameter<T> small("s", 2);
  distributed_data_parallel ddp({parameter.view(), small.view()});
  const int live = (world.size() + 1) / 2;  // the higher ranks: those below add nothing in front
  const int first = world.size() - live;
  join_scope scope(ddp, {.divisor = divide_by::live_ranks});
  if (world.rank() >= first) {
    ddp.begin_forward();
    for (std::size_t i = 0; i < count; ++i) {
      parameter.gradient[i] = element(world.rank(), i);
    }
    small.gradient.assign(2, element(world.rank(), 1));
    ddp.mark_ready("s");
    ddp.mark_ready("p");
    ddp.finish();
  }
  scope.finish();
  bool equal = true;
  const auto compare = [&](std::size_t i, T got) {
    using wide = std::conditional_t<std::same_as<T, double>, double, float>;
    std::vector<wide> elements(as_index(world.size()), wide(-0.0));
    for (int rank = first; rank < world.size(); ++rank) {
      elements[as_index(rank)] = static_cast<wide>(element(rank, i));
    }
    const wide sum = combine_in_tree(std::span<const wide>(elements), std::plus<>());
    const T expected(sum / static_cast<wide>(live));
    equal = equal && std::memcmp(&expected, &got, sizeof(T)) == 0;
  };
  for (std::size_t i = 0; i < count; ++i) {
    compare(i, parameter.gradient[i]);
  }
  compare(1, small.gradient[1]);
  CHECK(equal);
}

TEST_CASE_TEMPLATE("join: ranks without data change no bit of any type, not even the sign of a zero", T, float, double,
                   float16, bfloat16) {
  at_every_size([](const process_group& world) { check_narrow<T>(world); });
}

TEST_CASE("join: parameters may be unused on ranks with data and without") {
  at_every_size([](const process_group& world) {
    toy_model model({4, 5, 6});
    distributed_data_parallel ddp(model.views(), {}, {.find_unused_parameters = true});
    const int last = world.size() - 1;
    for (auto index : each_of(0, 1, 2)) {
      model[index].gradient.assign(model[index].gradient.size(), 8.0F);
    }
    join_scope scope(ddp);
    for (int pass = 0; pass < (world.rank() == last ? 2 : 1); ++pass) {
      ddp.begin_forward();
      if (pass == 0) {
        ddp.mark_ready("p0");
      } else {
        model[1].gradient.assign(5, 8.0F);
        ddp.mark_ready("p1");
      }
      ddp.finish();
    }
    scope.finish();
    CHECK((model[0].gradient == std::vector<float>(4, 8.0F)));
    CHECK((model[1].gradient == std::vector<float>(5, 8.0F / static_cast<float>(world.size()))));
    CHECK((model[2].gradient == std::vector<float>(6, 8.0F)));
  });
}

TEST_CASE("join: no_sync and accumulation work inside") {
  at_every_size([](const process_group& world) {
    toy_model model({3, 300});
    std::vector<int> buffer(1);
    distributed_data_parallel ddp(model.views(), {named_buffer("buffer", buffer)});
    accumulate cycle(ddp, 2);
    int shadowed = 0;
    float total = 0.0F;  // of the averages that this rank sees
    const int mine = 2 * world.rank();
    run_joined(ddp, {.on_shadow = [&] { ++shadowed; }}, [&] {
      for (int batch = 0; batch < mine; ++batch) {
        const auto step = cycle.step();
        buffer[0] = world.rank();
        ddp.begin_forward();
        // Inside no_sync buffers stay; outside they are those of the lowest rank with data.
        CHECK(buffer[0] == (step.synchronizes() ? batch / 2 + 1 : world.rank()));
        for (const std::size_t index : each_of(1, 0)) {
          for (float& element : model[index].gradient) {
            element += static_cast<float>(world.rank());
          }
          ddp.mark_ready(index);
        }
        ddp.finish();
        if (step.synchronizes()) {
          float expected = 0.0F;
          for (int rank = batch / 2 + 1; rank < world.size(); ++rank) {
            expected += 2.0F * static_cast<float>(rank);
          }
          CHECK(model[1].gradient == std::vector<float>(300, expected / static_cast<float>(world.size())));
          total += expected;
          model[0].gradient.assign(3, 0.0F);
          model[1].gradient.assign(300, 0.0F);
        }
      }
    });
    CHECK(shadowed == world.size() - 1 - world.rank());
    if (world.rank() + 1 == world.size()) {
      float expected = 0.0F;  // every batch counts once
      for (int rank = 0; rank < world.size(); ++rank) {
        expected += static_cast<float>(rank * rank * 2);
      }
      CHECK(total == expected);
    }
  });
}

TEST_CASE("join: scopes may follow each other with plain passes between") {
  at_every_size([](const process_group& world) {
    toy_model model(join_sizes);
    distributed_data_parallel ddp(model.views());
    for (int epoch = 0; epoch < 3; ++epoch) {
      join_scope scope(ddp);
      for (int pass = 0; pass < (world.rank() + epoch) % 3; ++pass) {
        ddp.begin_forward();
        set_gradients(model, world.rank(), pass);
        mark_all(model, ddp);
        ddp.finish();
        optimize(model);
      }
      scope.finish();
      check_same_everywhere(model[2].value, world);
      // The scope is over, though the object is still there.
      check_trains(model, ddp, world);
    }
  });
}

TEST_CASE("join: without init it changes nothing") {
  toy_model model({3});
  distributed_data_parallel ddp(model.views());
  run_joined(ddp, {.throw_on_early_end = true}, [&] {
    ddp.begin_forward();
    model.set_gradient(0, 0);
    ddp.mark_ready("p0");
    ddp.finish();
    CHECK(model.is_average(1, 0));
  });
}

}  // namespace
