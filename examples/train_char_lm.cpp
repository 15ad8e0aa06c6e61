// SPDX-License-Identifier: MIT
// Several processes train one character model on one text. Every rank computes the gradients of its share of each
// batch; hfcomm averages them while backward goes on.
//
//   train_char_lm --processes 2 --text FILE        two ranks on this machine
//   train_char_lm --text FILE                      one process; or, under RANK, WORLD_SIZE, ..., one rank of many
//
// test: --processes 2 --text LICENSE --steps 12 --batch 32 --accumulate 2 --compare-single

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/comm.hpp>
#include <hfcomm/ddp.hpp>

#include "char_lm/adam.hpp"
#include "char_lm/model.hpp"
#include "char_lm/options.hpp"
#include "char_lm/progress.hpp"
#include "char_lm/report.hpp"
#include "char_lm/sampler.hpp"
#include "char_lm/vocabulary.hpp"

namespace {

using char_lm::clock_type;
using char_lm::seconds_since;
using char_lm::settings;

constexpr char_lm::program self{.name = "train_char_lm", .has_compare_single = true};

/// A model, its optimiser, and its reducer among the ranks of a group.
class trainer {
 public:
  trainer(const char_lm::model_options& options, std::size_t symbols, std::uint64_t model_seed,
          char_lm::batch_sampler batches, const hfcomm::process_group& group)
      : model_(symbols, options, model_seed), optimiser_(model_.parameters()), batches_(std::move(batches)) {
    std::vector<hfcomm::ddp_parameter> parameters;
    for (const auto& parameter : model_.parameters()) {
      parameters.push_back(hfcomm::named_parameter(parameter.name, parameter.value, parameter.gradient));
    }
    // Small buckets, as the model is small: the first reduction starts as soon as the last layer's gradients are there.
    hfcomm::ddp_options buckets;
    buckets.first_bucket_bytes = 128 << 10;
    buckets.bucket_bytes = 512 << 10;
    buckets.share_memory = true;  // large gradients are reduced where they are
    ddp_ = std::make_unique<hfcomm::distributed_data_parallel>(std::move(parameters), std::vector<hfcomm::ddp_buffer>(),
                                                               buckets, group);
  }

  char_lm::model& model() { return model_; }

  /// One optimiser step on this rank's share of the batch, in `passes` pieces; returns the share's weighted loss, whose
  /// average over the ranks is the loss of the batch.
  double step(std::span<const char_lm::symbol> text, std::size_t number, std::size_t passes, double learning_rate) {
    const auto mine = batches_.at(number);
    model_.zero_gradients();
    double loss = 0;
    for (std::size_t pass = 0; pass < passes; ++pass) {
      const auto [piece, weight] = mine.piece(pass, passes);
      const auto accumulating = ddp_->no_sync(pass + 1 < passes);
      ddp_->begin_forward();
      loss += static_cast<double>(weight) *
              static_cast<double>(
                  model_.forward_backward({text, piece}, weight, [&](std::size_t index) { ddp_->mark_ready(index); }));
      ddp_->finish();
    }
    optimiser_.step(learning_rate);
    return loss;
  }

 private:
  char_lm::model model_;
  char_lm::adam optimiser_;
  char_lm::batch_sampler batches_;
  std::unique_ptr<hfcomm::distributed_data_parallel> ddp_;
};

/// The mean loss over all held-out characters, each rank taking its share.
double held_out_loss(trainer& training, const char_lm::text_split& split, std::span<const char_lm::symbol> text) {
  const auto mine = char_lm::share_of(split.held_out_count(), hfcomm::rank(), hfcomm::world_size());
  const auto positions = char_lm::held_out_batch(split, mine);
  return hfcomm::all_reduce(static_cast<double>(mine.weight) * training.model().evaluate({text, positions}),
                            hfcomm::reduce_op::average);
}

/// A rank's part of the batches that the ranks of `group` train on together.
char_lm::batch_sampler batches_of(const char_lm::text_split& split, const settings& wanted,
                                  const hfcomm::process_group& group) {
  return {split, wanted.batch, wanted.seed, group.rank(), group.size()};
}

/// Steps per second of all ranks together over those of rank 0 alone, with the same batches: the two take turns, and
/// the median of the turns' ratios counts.
double measure_speed_up(const char_lm::model_options& options, std::size_t symbols, const char_lm::text_split& split,
                        std::span<const char_lm::symbol> text, const settings& wanted) {
  trainer together(options, symbols, wanted.seed, batches_of(split, wanted, hfcomm::world()), hfcomm::world());
  const hfcomm::process_group nobody_else;
  trainer alone(options, symbols, wanted.seed, batches_of(split, wanted, nobody_else), nobody_else);
  const auto time = [&](trainer& who, std::size_t steps) {
    const auto start = clock_type::now();
    for (std::size_t step = 0; step < steps; ++step) {
      who.step(text, step, wanted.accumulate, 1e-4);
    }
    return seconds_since(start) / static_cast<double>(steps);
  };
  // As many steps as take rank 0 alone about half a second, but the same number on all ranks.
  std::size_t steps = 0;
  if (hfcomm::rank() == 0) {
    time(alone, 1);
    steps = std::clamp<std::size_t>(static_cast<std::size_t>(0.5 / time(alone, 2)), 1, 200);
  }
  hfcomm::broadcast(steps);
  time(together, 2);
  std::vector<double> ratios;
  for (int turn = 0; turn < 5; ++turn) {
    const double one = hfcomm::rank() == 0 ? time(alone, steps) : 0;
    hfcomm::barrier();
    const double all = hfcomm::all_reduce(time(together, steps), hfcomm::reduce_op::max);
    ratios.push_back(hfcomm::rank() == 0 ? one / all : 0);
  }
  std::sort(ratios.begin(), ratios.end());
  return ratios[ratios.size() / 2];
}

void train(const settings& wanted) {
  const bool main_process = hfcomm::is_main_process();
  const std::string raw = hfcomm::read_file_dist(wanted.text);
  const char_lm::vocabulary symbols(raw);
  const auto text = symbols.encode(raw);
  char_lm::model_options options;
  const auto split = char_lm::split_text(text.size(), options.context);
  options.context = split.context;

  // Every rank starts from another model on purpose: the reducer gives all of them rank 0's.
  trainer training(options, symbols.size(), wanted.seed + static_cast<std::uint64_t>(hfcomm::rank()),
                   batches_of(split, wanted, hfcomm::world()), hfcomm::world());
  if (main_process) {
    std::printf("%zu characters, %zu distinct; a model of %zu parameters; %d %s (%s)\n", text.size(), symbols.size(),
                training.model().parameter_count(), hfcomm::world_size(),
                hfcomm::world_size() == 1 ? "process" : "processes",
                std::string(hfcomm::world().host_backend()).c_str());
    if (!split.note.empty()) {
      std::printf("note: %s\n", split.note.c_str());
    }
  }
  const double before = held_out_loss(training, split, text);
  const char_lm::progress_line progress(wanted.steps, static_cast<double>(wanted.batch));
  for (std::size_t step = 0; step < wanted.steps; ++step) {
    const double share_loss = training.step(text, step, wanted.accumulate,
                                            char_lm::learning_rate_at(step, wanted.steps, wanted.learning_rate));
    if (progress.due(step)) {
      const double loss = hfcomm::all_reduce(share_loss, hfcomm::reduce_op::average);
      if (main_process) {
        progress.show(step, loss);
      }
    }
  }
  const double after = held_out_loss(training, split, text);
  const bool identical = char_lm::report(training.model(), symbols, wanted, before, after);
  if (wanted.compare_single && hfcomm::world_size() > 1) {
    const double speed_up = measure_speed_up(options, symbols.size(), split, text, wanted);
    if (main_process) {
      std::printf("speed-up of %d processes over one, measured in turns: %.2fx\n", hfcomm::world_size(), speed_up);
    }
  }
  if (!identical) {
    throw std::runtime_error("the ranks' parameters differ");
  }
}

}  // namespace

int main(int count, char** arguments) { return self.run(count, arguments, train); }
