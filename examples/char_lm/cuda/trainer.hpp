// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <hfcomm/comm.hpp>
#include <hfcomm/ddp.hpp>
#include <hfcomm/nccl.hpp>

#include "char_lm/cuda/adam.hpp"
#include "char_lm/cuda/batch_feed.hpp"
#include "char_lm/cuda/model.hpp"
#include "char_lm/sampler.hpp"

namespace char_lm {

/// A model on a GPU, its optimiser, and its reducer among the ranks of a group. All of it goes on one stream, and the
/// host waits where a function says so, and where it is too far ahead: see batch_feed.
class device_trainer {
 public:
  /// Collective. The device that is current holds it all. Every rank's model has rank 0's values, whatever the seed.
  device_trainer(const model_options& options, std::size_t vocabulary_size, std::uint64_t model_seed,
                 std::span<const symbol> text, batch_sampler batches, hfcomm::stream_ref stream,
                 const hfcomm::process_group& group)
      : stream_(stream),
        model_(vocabulary_size, options, model_seed, stream),
        feed_(text, vocabulary_size, options.context, stream),
        optimiser_(model_.values(), model_.gradients(), stream),
        batches_(std::move(batches)),
        ddp_(parameters_of(model_), {}, reduced_on(stream), group),
        watch_(ddp_.device_group()) {}

  [[nodiscard]] device_model& model() noexcept { return model_; }
  [[nodiscard]] hfcomm::distributed_data_parallel& reducer() noexcept { return ddp_; }

  /// One optimiser step on this rank's share of the batch, in `passes` pieces, of which the last one communicates.
  void step(std::size_t number, std::size_t passes, double learning_rate) {
    const auto mine = batches_.at(number);
    model_.zero_gradients();
    for (std::size_t pass = 0; pass < passes; ++pass) {
      const auto [piece, weight] = mine.piece(pass, passes);
      const auto accumulating = ddp_.no_sync(pass + 1 < passes);
      ddp_.begin_forward();
      model_.forward_backward(feed_.put(piece), weight, [&](std::size_t index) { ddp_.mark_ready(index); });
      ddp_.finish();
    }
    optimiser_.step(learning_rate);
  }

  /// The weighted loss of this rank's share in the last step; its average over the ranks is the loss of the batch.
  /// Waits for the device; throws where a rank is lost.
  [[nodiscard]] double loss() {
    synchronize();
    return model_.loss();
  }
  /// The mean loss over these positions. Waits as loss() does.
  [[nodiscard]] double evaluate(std::span<const std::size_t> positions) {
    synchronize();
    return model_.evaluate(feed_, positions);
  }
  /// Gives a model on the host these values. Waits as loss() does.
  void copy_values_to(char_lm::model& host) {
    synchronize();
    model_.copy_values_to(host);
  }

 private:
  static std::vector<hfcomm::ddp_parameter> parameters_of(const device_model& network) {
    std::vector<hfcomm::ddp_parameter> parameters;
    for (const auto& p : network.parameters())
      parameters.push_back(hfcomm::named_parameter(p.name, p.value, p.gradient));
    return parameters;
  }
  static hfcomm::ddp_options reduced_on(hfcomm::stream_ref stream) {
    hfcomm::ddp_options options;
    // Small buckets, as the model is small: the first reduction starts as soon as the last layer's gradients are there.
    options.first_bucket_bytes = 128 << 10;
    options.bucket_bytes = 512 << 10;
    options.stream = stream;
    return options;
  }

  void synchronize() { hfcomm::synchronize(stream_, ddp_.device_group()); }

  hfcomm::stream_ref stream_;
  device_model model_;
  batch_feed feed_;
  device_adam optimiser_;
  batch_sampler batches_;
  hfcomm::distributed_data_parallel ddp_;
  hfcomm::device_watch watch_;  // model and feed wait for events, which alone would wait for ever for a lost rank
};

}  // namespace char_lm
