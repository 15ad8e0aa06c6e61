// SPDX-License-Identifier: MIT
#include "ranks.hpp"
#include "toy_model.hpp"

#include <algorithm>
#include <functional>
#include <span>

#include "../tree.hpp"

#include <hfcomm/ddp.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

constexpr std::size_t element_count = 40;
constexpr int epochs = 2;

/// How many micro-batches each rank has.
using batch_counts = int (*)(int rank, int ranks);
constexpr std::array<batch_counts, 6> all_batch_counts{[](int rank, int) { return rank % 2 == 0 ? 3 : 5; },
                                                       [](int rank, int) { return rank % 2 == 0 ? 5 : 3; },
                                                       [](int rank, int) { return rank; },
                                                       [](int rank, int ranks) { return 2 * (ranks - rank) - 1; },
                                                       [](int, int) { return 5; },
                                                       [](int rank, int) { return rank % 3 == 1 ? 7 : rank % 3; }};

std::vector<int> counts_of(batch_counts shares, int ranks) {
  std::vector<int> counts;
  for (int rank = 0; rank < ranks; ++rank) {
    counts.push_back(shares(rank, ranks));
  }
  return counts;
}

/// The gradient of a micro-batch. It depends on the parameter, so that a lost or late step stays visible.
float gradient_of(float value, int rank, std::size_t i, int pass) {
  const float decay = 0.25F * value;
  return toy_model::gradient_of(rank, 0, i, pass) - decay;
}
float stepped(float value, float gradient) {
  const float change = 0.1F * gradient;
  return value - change;
}

/// Trains in one process as the ranks do together.
std::vector<float> train_alone(const std::vector<int>& counts, int every, bool with_last, divide_by divisor) {
  std::vector<float> values(element_count, 1.0F);
  const int passes = *std::max_element(counts.begin(), counts.end());
  for (int epoch = 0; epoch < epochs; ++epoch) {
    std::vector<std::vector<float>> sums(counts.size());  // of each rank; empty if there is none
    const auto step = [&](int pass) {
      const auto adding = static_cast<int>(
          std::count_if(sums.begin(), sums.end(), [](const std::vector<float>& sum) { return !sum.empty(); }));
      CHECK((adding > 0 || pass == passes));
      const auto by = static_cast<float>(divisor == divide_by::live_ranks ? adding : static_cast<int>(counts.size()));
      for (std::size_t i = 0; adding > 0 && i < element_count; ++i) {
        std::vector<float> column;
        for (const std::vector<float>& sum : sums) {
          column.push_back(sum.empty() ? -0.0F : sum[i]);
        }
        values[i] = stepped(values[i], combine_in_tree(std::span<const float>(column), std::plus<>()) / by);
      }
      sums.assign(counts.size(), {});
    };
    for (int pass = 0; pass < passes; ++pass) {
      for (std::size_t rank = 0; rank < counts.size(); ++rank) {
        if (pass < counts[rank]) {
          sums[rank].resize(element_count);
          for (std::size_t i = 0; i < element_count; ++i) {
            sums[rank][i] += gradient_of(values[i], static_cast<int>(rank), i, pass);
          }
        }
      }
      if ((pass + 1) % every == 0 || (with_last && pass + 1 == passes)) {
        step(pass);
      }
    }
    step(passes);
  }
  return values;
}

struct trainer {
  explicit trainer(const process_group& world, ddp_options options = {})
      : rank(world.rank()), model({element_count}), ddp(model.views(), {}, std::move(options)) {
    model[0].value.assign(element_count, 1.0F);
  }

  void backward(int pass) {
    ddp.begin_forward();
    for (std::size_t i = 0; i < element_count; ++i) {
      model[0].gradient[i] += gradient_of(model[0].value[i], rank, i, pass);
    }
    ddp.mark_ready("p0");
    ddp.finish();
  }
  void optimize() {
    for (std::size_t i = 0; i < element_count; ++i) {
      model[0].value[i] = stepped(model[0].value[i], model[0].gradient[i]);
    }
    zero();
  }
  void zero() { model[0].gradient.assign(element_count, 0.0F); }
  void epoch(accumulate& cycle, int mine, bool with_last) {
    for (int pass = 0; pass < mine; ++pass) {
      const auto step = cycle.step(with_last && pass + 1 == mine);
      backward(pass);
      if (step.synchronizes()) {
        optimize();
      }
    }
  }
  void check_still_trains(const process_group& world) {
    check_usable(world);
    ddp.begin_forward();
    model.set_gradient(rank, 0, 4);
    ddp.mark_ready("p0");
    ddp.finish();
    CHECK(model.is_average(world.size(), 0, 4));
  }

  int rank;
  toy_model model;
  distributed_data_parallel ddp;
};

/// Compares joined training with a single process. `steps_along`: ranks without data step their optimizer, too.
void check_training(bool with_last, bool steps_along) {
  for (const batch_counts shares : all_batch_counts) {
    for (const int every : {2, 3, 4}) {
      for (const divide_by divisor : {divide_by::initial_world, divide_by::live_ranks}) {
        const bool find_unused = every == 3;
        at_every_size([&](const process_group& world) {
          const auto counts = counts_of(shares, world.size());
          trainer mine(world, {.find_unused_parameters = find_unused});
          accumulate cycle(mine.ddp, static_cast<std::size_t>(every));
          join_options options{.divisor = divisor, .synchronize_final_model = !steps_along};
          if (steps_along) {
            options.on_shadow = [&] { mine.optimize(); };
          }
          for (int epoch = 0; epoch < epochs; ++epoch) {
            run_joined(mine.ddp, options, [&] { mine.epoch(cycle, counts[as_index(world.rank())], with_last); });
            mine.zero();
          }
          CHECK((mine.model[0].value == train_alone(counts, every, with_last, divisor)));
          mine.check_still_trains(world);
        });
      }
    }
  }
}

TEST_CASE("join and accumulate: uneven shards give the bits of a single process") { check_training(true, false); }

TEST_CASE("join and accumulate: optimizers that step on every rank need no final synchronization") {
  check_training(true, true);
}

TEST_CASE("join and accumulate: gradients left inside no_sync when all data ends are averaged once more") {
  check_training(false, true);
}

TEST_CASE("join and accumulate: a rank's last step averages only if the others average, and says so") {
  run_noted(2, {}, [](const process_group& world) {
    trainer mine(world);
    accumulate cycle(mine.ddp, 2);
    std::vector<bool> averaged;
    const int batches = world.rank() == 0 ? 3 : 5;
    run_joined(mine.ddp, {}, [&] {
      for (int pass = 0; pass < batches; ++pass) {
        const auto step = cycle.step(pass + 1 == batches);
        mine.backward(pass);
        averaged.push_back(step.synchronizes());
        CHECK(mine.ddp.synchronizes() == step.synchronizes());
      }
    });
    CHECK(mine.ddp.synchronizes());
    CHECK((averaged == (world.rank() == 0 ? std::vector<bool>{false, true, false}
                                          : std::vector<bool>{false, true, false, true, true})));
  });
}

TEST_CASE("join and accumulate: remaining gradients that no optimizer would use are an error on every rank") {
  at_every_size([](const process_group& world) {
    trainer mine(world);
    accumulate cycle(mine.ddp, 2);
    const int last = world.size() - 1;
    // Only the last rank ends in the middle of a cycle; all others could step.
    join_options options;
    if (world.rank() != last) {
      options.on_shadow = [&] { mine.optimize(); };
    }
    const auto train = [&] {
      run_joined(mine.ddp, options, [&] { mine.epoch(cycle, world.rank() == last ? 3 : 2, false); });
    };
    if (world.rank() == last) {
      const auto problem = error_of<usage_error>(train);
      CHECK_CONTAINS(problem.what(), "while rank " + std::to_string(last) + " held gradients");
      CHECK_CONTAINS(problem.what(), "join_accumulate_test.cpp");
    } else {
      const auto problem = error_of<peer_error>(train);
      CHECK(problem.peer() == last);
      CHECK_FALSE(problem.fatal());
      CHECK_CONTAINS(problem.what(), "accumulate::step(true)");
    }
    mine.check_still_trains(world);
  });
}

}  // namespace
