// SPDX-License-Identifier: MIT
#include "ranks.hpp"
#include "toy_model.hpp"

#include <cmath>
#include <random>

#include <hfcomm/ddp.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

constexpr std::size_t features = 6;
constexpr std::size_t batch = 24;  // a multiple of every number of ranks
constexpr int training_steps = 40;

struct example {
  std::array<float, features> x;
  float y;
};

std::vector<example> batch_of(int step) {
  std::mt19937 random(static_cast<unsigned>(step) + 17);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  std::vector<example> examples(batch);
  for (auto& one : examples) {
    one.y = 0.5F;
    for (std::size_t i = 0; i < features; ++i) {
      one.x[i] = uniform(random);
      one.y += one.x[i] * (static_cast<float>(i) - 2.0F);
    }
  }
  return examples;
}

struct trained {
  std::vector<float> parameters;
  std::vector<float> losses;
};

/// Fits y = w x + b on this rank's share of every batch.
trained train(const process_group& world, const ddp_options& options, int accumulation_steps) {
  toy_parameter<float> weight("weight", features);
  toy_parameter<float> bias("bias", 1);
  if (world.rank() == 0) {
    weight.value.assign(features, 0.1F);
  } else {
    weight.value.assign(features, 99.0F);  // to be overwritten by rank 0's
  }
  distributed_data_parallel ddp({weight.view(), bias.view()}, {}, options, world);
  trained result;
  const auto ranks = as_index(world.size());
  for (int step = 0; step < training_steps; ++step) {
    const auto examples = batch_of(step);
    const std::size_t share = batch / ranks;
    const std::size_t part = share / static_cast<std::size_t>(accumulation_steps);
    float loss = 0.0F;
    weight.gradient.assign(features, 0.0F);
    bias.gradient.assign(1, 0.0F);
    const auto pass = [&](std::size_t begin) {
      ddp.begin_forward();
      for (std::size_t k = begin; k < begin + part; ++k) {
        const example& one = examples[as_index(world.rank()) * share + k];
        float error = bias.value[0] - one.y;
        for (std::size_t i = 0; i < features; ++i) {
          error += weight.value[i] * one.x[i];
        }
        loss += error * error / static_cast<float>(share);
        bias.gradient[0] += 2.0F * error / static_cast<float>(share);
        for (std::size_t i = 0; i < features; ++i) {
          weight.gradient[i] += 2.0F * error * one.x[i] / static_cast<float>(share);
        }
      }
      ddp.mark_ready("bias");
      ddp.mark_ready("weight");
      ddp.finish();
    };
    if (accumulation_steps == 2) {
      const auto off = ddp.no_sync();
      pass(0);
    }
    pass(accumulation_steps == 2 ? part : 0);
    for (std::size_t i = 0; i < features; ++i) {
      weight.value[i] -= 0.3F * weight.gradient[i];
    }
    bias.value[0] -= 0.3F * bias.gradient[0];
    result.losses.push_back(all_reduce(loss, reduce_op::average, world));
  }
  result.parameters = weight.value;
  result.parameters.push_back(bias.value[0]);
  return result;
}

TEST_CASE(
    "ddp: training gives the same bits on all ranks, and the same model but for rounding on any number of ranks") {
  const trained alone = train(process_group(), {}, 1);
  for (const int ranks : rank_counts) {
    trained first_run;
    for (const bool tiny : {false, true}) {
      ddp_options options;
      options.find_unused_parameters = tiny;
      options.first_bucket_bytes = options.bucket_bytes = tiny ? 1 : 1 << 20;
      trained here;
      run_noted(ranks, {}, [&](const process_group& world) {
        const auto result = train(world, options, 1);
        check_same_everywhere(result.parameters, world);
        check_same_everywhere(result.losses, world);
        if (world.rank() == 0) {
          here = result;
        }
      });
      // Buckets make no difference, not in a single bit.
      first_run = tiny ? first_run : here;
      CHECK((here.parameters == first_run.parameters));
      CHECK((here.losses == first_run.losses));
    }
    REQUIRE(first_run.losses.size() == alone.losses.size());
    REQUIRE(first_run.losses.size() == as_index(training_steps));
    CHECK(first_run.losses.back() < 0.01F * first_run.losses.front());
    for (std::size_t step = 0; step < first_run.losses.size(); ++step) {
      CHECK(std::abs(first_run.losses[step] - alone.losses[step]) < 1e-4F);
    }
    for (std::size_t i = 0; i < alone.parameters.size(); ++i) {
      CHECK(std::abs(first_run.parameters[i] - alone.parameters[i]) < 1e-4F);
    }
  }
}

TEST_CASE("ddp: training with accumulation under no_sync gives the same model but for rounding") {
  const auto reference = train(process_group(), {}, 1);
  for (const int ranks : {1, 2, 4}) {
    run_noted(ranks, {}, [&](const process_group& world) {
      const auto result = train(world, {}, 2);
      check_same_everywhere(result.parameters, world);
      for (std::size_t i = 0; i < result.parameters.size(); ++i) {
        CHECK(std::abs(result.parameters[i] - reference.parameters[i]) < 1e-4F);
      }
    });
  }
}

}  // namespace
