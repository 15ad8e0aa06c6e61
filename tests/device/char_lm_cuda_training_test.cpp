// SPDX-License-Identifier: MIT
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "char_lm/adam.hpp"
#include "char_lm/cuda/trainer.hpp"
#include "char_lm/identical.hpp"
#include "char_lm/model.hpp"
#include "char_lm/sampler.hpp"
#include "char_lm_devices.hpp"

namespace {

using namespace char_lm;
using namespace device_ranks;

constexpr model_options small_sizes{.context = 4, .embedding = 3, .hidden = 12, .blocks = 1};
constexpr std::size_t train_steps = 5;
constexpr double rate = 5e-3;

struct outcome {
  std::vector<float> values;
  std::vector<double> losses;
  std::size_t buckets = 0;
};

void check_same(const outcome& found, const outcome& expected) {
  CHECK(distance(found.values, expected.values) < 1e-4);
  REQUIRE(found.losses.size() == expected.losses.size());
  for (std::size_t step = 0; step < found.losses.size(); ++step)
    CHECK(found.losses[step] == doctest::Approx(expected.losses[step]).epsilon(1e-4));
}

/// Trains on whole batches in one process on the host.
outcome train_on_host(const model_options& sizes, std::size_t batch_size, std::uint64_t seed) {
  const auto split = split_text(odd_text().size(), sizes.context);
  model network(odd_vocabulary, sizes, seed);
  adam optimiser(network.parameters());
  batch_sampler batches(split, batch_size, 9, 0, 1);
  outcome result;
  for (std::size_t step = 0; step < train_steps; ++step) {
    const auto positions = batches.at(step).positions;
    network.zero_gradients();
    result.losses.push_back(static_cast<double>(network.forward_backward({odd_text(), positions})));
    optimiser.step(rate);
  }
  result.values = values_of(network);
  return result;
}

/// Trains with the ranks on their devices, starting from different models.
outcome train_on_devices(const process_group& world, stream_ref stream, const model_options& sizes,
                         std::size_t batch_size, std::size_t passes, std::uint64_t seed) {
  const auto split = split_text(odd_text().size(), sizes.context);
  device_trainer training(sizes, odd_vocabulary, seed + static_cast<std::uint64_t>(world.rank()), odd_text(),
                          batch_sampler(split, batch_size, 9, world.rank(), world.size()), stream, world);
  CHECK(training.reducer().device_group().device_backend() == (world.size() == 1 ? "cuda" : "nccl"));
  outcome result;
  for (std::size_t step = 0; step < train_steps; ++step) {
    training.step(step, passes, rate);
    result.losses.push_back(all_reduce(training.loss(), reduce_op::average, world));
  }
  result.buckets = training.reducer().bucket_count();
  CHECK(training.reducer().finished_passes() == train_steps * passes);
  model network(odd_vocabulary, sizes, 0);
  training.copy_values_to(network);
  CHECK(identical_everywhere(network, world));
  result.values = values_of(network);
  return result;
}

}  // namespace

TEST_CASE("char_lm on devices: any number of ranks trains as one process does, in one pass or several") {
  constexpr std::uint64_t seed = 17;
  for (const std::size_t batch_size : {24U, 10U, 3U}) {  // even, uneven and empty shares
    const auto expected = train_on_host(small_sizes, batch_size, seed);
    for (const int ranks : {1, 2, 4}) {
      std::vector<std::uint64_t> reductions;
      for (const std::size_t passes : {1U, 3U}) {
        CAPTURE(batch_size);
        CAPTURE(ranks);
        CAPTURE(passes);
        const fake_cuda::install fake;
        run_devices(ranks, [&](const process_group& world, stream_ref stream) {
          check_same(train_on_devices(world, stream, small_sizes, batch_size, passes, seed), expected);
        });
        reductions.push_back(fake_cuda::calls("ncclAllReduce"));
      }
      CHECK(reductions[0] == reductions[1]);  // only a step's last pass communicates
      CHECK((reductions[0] > 0) == (ranks > 1));
    }
  }
}

TEST_CASE("char_lm on devices: gradients may take several buckets") {
  constexpr model_options large{.context = 4, .embedding = 3, .hidden = 200, .blocks = 1};
  const auto expected = train_on_host(large, 6, 3);
  const fake_cuda::install fake;
  run_devices(2, [&](const process_group& world, stream_ref stream) {
    const auto found = train_on_devices(world, stream, large, 6, 1, 3);
    CHECK(found.buckets > 1);
    check_same(found, expected);
  });
}

TEST_CASE("char_lm on devices: two runs have the same bits") {
  const fake_cuda::install fake;
  run_devices(2, [](const process_group& world, stream_ref stream) {
    const auto once = train_on_devices(world, stream, small_sizes, 24, 2, 4);
    const auto again = train_on_devices(world, stream, small_sizes, 24, 2, 4);
    CHECK(once.values == again.values);
    CHECK(once.losses == again.losses);
    CHECK(once.values != train_on_devices(world, stream, small_sizes, 24, 2, 5).values);
  });
}

TEST_CASE("char_lm on devices: a lost rank ends the others' waits") {
  const fake_cuda::install fake;
  const auto cause = cause_of(2, [](const process_group& world) {
    const rank_stream stream(world);
    const auto split = split_text(odd_text().size(), small_sizes.context);
    device_trainer training(small_sizes, odd_vocabulary, 1, odd_text(),
                            batch_sampler(split, 8, 9, world.rank(), world.size()), stream, world);
    training.step(0, 1, rate);
    if (world.rank() == 1) {
      throw std::runtime_error("this GPU is on fire");
    }
    // Without a loss to wait for: the host is stopped by the batches that it is ahead.
    const auto problem = error_of<peer_error>([&] {
      for (std::size_t step = 1; step < 1000; ++step)
        training.step(step, 1, rate);
    });
    CHECK(says(problem, "rank 1"));
  });
  CHECK(cause.find("this GPU is on fire") != std::string::npos);
}
