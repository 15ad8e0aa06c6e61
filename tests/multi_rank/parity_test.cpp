// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

#include <hfcomm/ddp.hpp>

#include "char_lm/adam.hpp"
#include "char_lm/model.hpp"
#include "char_lm/sampler.hpp"
#include "char_lm/vocabulary.hpp"

namespace {

using namespace hfcomm;
using namespace multi_rank;

constexpr std::size_t step_count = 20;
constexpr std::size_t batch_size = 30;  // no multiple of 4: at 4 ranks the shares differ

/// A text with a pattern to learn.
std::string training_text() {
  const std::array<std::string, 6> words{"the ", "reduced ", "gradient ", "of ", "every ", "rank. "};
  std::string text;
  for (std::uint64_t i = 0; i < 600; ++i) {
    text += words[char_lm::mix(i) % words.size()];
  }
  return text;
}

/// Trains on this rank's shares of the same batches, whatever the number of ranks; returns the losses of the whole
/// batches. All ranks end with the same bits, or the checks say so.
std::vector<double> train(const process_group& world, std::size_t passes, const ddp_options& buckets) {
  const std::string raw = training_text();
  const char_lm::vocabulary symbols(raw);
  const auto text = symbols.encode(raw);
  const char_lm::model_options shape{.context = 8, .embedding = 8, .hidden = 48, .blocks = 2};
  const auto split = char_lm::split_text(text.size(), shape.context);
  char_lm::model network(symbols.size(), shape,
                         1 + as_index(world.rank()));  // starts with different values on every rank
  char_lm::adam optimiser(network.parameters());
  std::vector<ddp_parameter> parameters;
  for (const auto& parameter : network.parameters()) {
    parameters.push_back(named_parameter(parameter.name, parameter.value, parameter.gradient));
  }
  distributed_data_parallel ddp(std::move(parameters), {}, buckets, world);

  char_lm::batch_sampler batches(split, batch_size, 5, world.rank(), world.size());
  std::vector<double> losses;
  for (std::size_t step = 0; step < step_count; ++step) {
    const auto mine = batches.at(step);
    const auto& positions = mine.positions;
    network.zero_gradients();
    double loss = 0;
    const auto pass = [&](std::size_t first, std::size_t last) {
      const auto piece = std::span(positions).subspan(first, last - first);
      const float weight = mine.weight * static_cast<float>(piece.size()) / static_cast<float>(positions.size());
      ddp.begin_forward();
      loss +=
          static_cast<double>(weight) * static_cast<double>(network.forward_backward(
                                            {text, piece}, weight, [&](std::size_t index) { ddp.mark_ready(index); }));
      ddp.finish();
    };
    const std::size_t middle = passes == 2 ? positions.size() / 2 : 0;
    if (passes == 2) {
      const auto off = ddp.no_sync();
      pass(0, middle);
    }
    pass(middle, positions.size());
    optimiser.step(char_lm::learning_rate_at(step, step_count, 0.003));
    losses.push_back(all_reduce(loss, reduce_op::average, world));
  }
  for (const auto& parameter : network.parameters()) {
    std::vector<std::uint32_t> bits;
    for (const float value : parameter.value) {
      bits.push_back(std::bit_cast<std::uint32_t>(value));
    }
    check_same_everywhere(bits, world);
  }
  return losses;
}

TEST_CASE(
    "ddp: one model and sequence of batches gives the same losses at 1, 2 and 4 ranks, and the same bits on all of "
    "them") {
  const auto reference = train(process_group(), 1, {});
  REQUIRE(reference.size() == step_count);
  CHECK(reference.front() > 2.5);
  CHECK(reference.back() < reference.front() - 0.3);
  for (const int ranks : {1, 2, 4}) {
    for (const std::size_t passes : each_of(1, 2)) {
      ddp_options buckets;
      buckets.first_bucket_bytes = buckets.bucket_bytes = passes == 1 ? 4096 : 1 << 20;
      run_noted(ranks, std::to_string(passes) + " passes", [&](const process_group& world) {
        const auto losses = train(world, passes, buckets);
        check_same_everywhere(losses, world);
        for (std::size_t step = 0; step < step_count; ++step) {
          CHECK(std::abs(losses[step] - reference[step]) < 1e-4);
        }
      });
    }
  }
}

}  // namespace
