// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <hfcomm/core/device_span.hpp>
#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/cuda/copy.hpp>
#include <hfcomm/cuda/device_buffer.hpp>
#include <hfcomm/cuda/device_event.hpp>
#include <hfcomm/cuda/pinned_buffer.hpp>

#include "char_lm/cuda/batch_feed.hpp"
#include "char_lm/cuda/for_each.hpp"
#include "char_lm/cuda/kernels.hpp"
#include "char_lm/cuda/loss_kernels.hpp"
#include "char_lm/model.hpp"

namespace char_lm {

/// One tensor to train, in device memory: see parameter.
struct device_parameter {
  std::string name;
  hfcomm::device_span<float> value;
  hfcomm::device_span<float> gradient;
};

/// The character model of model.hpp on a GPU: the same shape, names, initial values and maths, apart from the order of
/// some sums. Everything is put on one stream; the host waits only where it says so, and where a batch is larger than
/// all before it, since that takes more memory. Not thread-safe. The spans of parameters() survive a move.
class device_model {
 public:
  /// See model. The device that is current holds it.
  device_model(std::size_t vocabulary_size, const model_options& options, std::uint64_t seed, hfcomm::stream_ref stream)
      : device_model(model(vocabulary_size, options, seed), stream) {}
  /// With the shape and the values of a model on the host.
  device_model(const model& initial, hfcomm::stream_ref stream)
      : options_(initial.options()),
        symbols_(initial.vocabulary_size()),
        stream_(stream),
        on_host_(initial.parameter_count()),
        losses_on_host_(loss_count),
        values_(initial.parameter_count()),
        gradients_(initial.parameter_count()),
        losses_(loss_count),
        blocks_(options_.blocks) {
    std::size_t offset = 0;
    for (const auto& p : initial.parameters()) {
      const std::size_t size = p.value.size();
      parameters_.push_back({p.name, values_.span().subspan(offset, size), gradients_.span().subspan(offset, size)});
      std::copy(p.value.begin(), p.value.end(), on_host_.begin() + offset);
      offset += size;
    }
    hfcomm::copy(on_host_, values_, stream_);
    zero_gradients();
  }

  [[nodiscard]] const model_options& options() const noexcept { return options_; }
  [[nodiscard]] std::size_t vocabulary_size() const noexcept { return symbols_; }
  /// All parameters, as model::parameters() has them.
  [[nodiscard]] const std::vector<device_parameter>& parameters() const noexcept { return parameters_; }
  [[nodiscard]] std::size_t parameter_count() const noexcept { return values_.size(); }
  /// The values of all parameters, one behind the other, and their gradients.
  [[nodiscard]] hfcomm::device_span<float> values() noexcept { return values_.span(); }
  [[nodiscard]] hfcomm::device_span<float> gradients() noexcept { return gradients_.span(); }

  /// Sets all gradients and the training loss to zero.
  void zero_gradients() {
    run(gradients_.size(), kernels::fill<float>{gradients_.data(), 0.0F});
    run(1, kernels::fill<double>{losses_.data() + training, 0.0});
  }

  /// Adds gradient_scale times the gradient of the batch's mean cross entropy to the gradients, and as much of the mean
  /// to loss(). Calls `on_ready(i)` once for each parameter i, last to first, as soon as all is on the stream that will
  /// touch its gradient. An empty batch adds nothing, and reports all parameters ready.
  template <std::invocable<std::size_t> OnReady>
  void forward_backward(const device_batch& examples, float gradient_scale, OnReady&& on_ready) {
    if (examples.positions.empty()) {
      for (std::size_t i = parameters_.size(); i > 0; --i)
        on_ready(i - 1);
      return;
    }
    forward(examples, static_cast<double>(gradient_scale), training);
    backward(examples, gradient_scale, on_ready);
  }
  void forward_backward(const device_batch& examples, float gradient_scale = 1.0F) {
    forward_backward(examples, gradient_scale, [](std::size_t) {});
  }

  /// The sum of gradient_scale times mean cross entropy over the passes since zero_gradients(). Waits for the stream.
  [[nodiscard]] double loss() { return read(training); }

  /// The mean cross entropy in nats, 0 for no examples. Leaves parameters, gradients and loss() alone; works in small
  /// pieces, so any number of examples will do. Waits for the stream.
  [[nodiscard]] double evaluate(batch_feed& feed, std::span<const std::size_t> positions) {
    constexpr std::size_t piece = 256;
    run(1, kernels::fill<double>{losses_.data() + evaluation, 0.0});
    for (std::size_t first = 0; first < positions.size(); first += piece) {
      const auto some = positions.subspan(first, std::min(piece, positions.size() - first));
      forward(feed.put(some), static_cast<double>(some.size()) / static_cast<double>(positions.size()), evaluation);
    }
    return read(evaluation);
  }

  /// Gives a model on the host these values. Throws std::invalid_argument for one of another shape. Waits for the
  /// stream.
  void copy_values_to(model& host) {
    const auto& theirs = host.parameters();
    if (!std::equal(theirs.begin(), theirs.end(), parameters_.begin(), parameters_.end(),
                    [](const auto& a, const auto& b) { return a.value.size() == b.value.size(); })) {
      throw std::invalid_argument("values of one model do not fit another of a different shape");
    }
    hfcomm::copy(values_, on_host_, stream_);
    wait();
    const float* source = on_host_.data();
    for (const auto& p : theirs) {
      std::copy_n(source, p.value.size(), p.value.begin());
      source += p.value.size();
    }
  }

 private:
  // Which of the losses on the device.
  enum which_loss : std::size_t { training, evaluation, loss_count };

  using buffer = hfcomm::device_buffer<float>;

  // A block's working memory: see model.
  struct block {
    buffer mean, inverse_deviation;
    buffer normalised, input, activation, output;
  };

  // Positions of a layer's parameters in parameters_.
  static constexpr std::size_t embedding_index = 0;
  static constexpr std::size_t hidden_index = 1;
  [[nodiscard]] static constexpr std::size_t scale_of(std::size_t block) noexcept { return 3 + 4 * block; }
  [[nodiscard]] static constexpr std::size_t shift_of(std::size_t block) noexcept { return scale_of(block) + 1; }
  [[nodiscard]] static constexpr std::size_t weight_of(std::size_t block) noexcept { return scale_of(block) + 2; }
  [[nodiscard]] std::size_t output_index() const noexcept { return scale_of(options_.blocks); }

  [[nodiscard]] const float* value(std::size_t i) const { return parameters_[i].value.data(); }
  [[nodiscard]] float* gradient(std::size_t i) const { return parameters_[i].gradient.data(); }
  [[nodiscard]] std::size_t columns_of(std::size_t weight) const { return parameters_[weight + 1].value.size(); }
  [[nodiscard]] std::size_t inner_of(std::size_t weight) const {
    return parameters_[weight].value.size() / columns_of(weight);
  }

  template <class Functor>
  void run(std::size_t count, const Functor& functor) {
    for_each_element(count, stream_, functor);
  }

  void wait() {
    done_.record(stream_);
    done_.synchronize();
  }
  [[nodiscard]] double read(which_loss which) {
    hfcomm::copy(losses_, losses_on_host_, stream_);
    wait();
    return losses_on_host_[which];
  }

  // Working memory for so many rows, and a few more; freeing the old one waits for the device.
  void reserve(std::size_t rows) {
    if (rows <= capacity_)
      return;
    const std::size_t capacity = (rows + 63) / 64 * 64;
    const std::size_t width = options_.hidden;
    const std::size_t input_width = options_.context * options_.embedding;
    const auto make = [&](buffer& target, std::size_t columns) { target = buffer(capacity * columns); };
    context_symbols_ = hfcomm::device_buffer<symbol>(capacity * options_.context);
    make(inputs_, input_width);
    for (buffer* one : {&hidden_activation_, &hidden_output_, &stream_gradient_, &branch_gradient_})
      make(*one, width);
    for (block& b : blocks_) {
      for (buffer* one : {&b.normalised, &b.input, &b.activation, &b.output})
        make(*one, width);
      make(b.mean, 1);
      make(b.inverse_deviation, 1);
    }
    make(probabilities_, symbols_);
    make(input_gradient_, std::max(input_width, width));
    for (buffer* one : {&row_losses_, &absorbed_mean_, &absorbed_projection_})
      make(*one, 1);
    capacity_ = capacity;
  }

  void linear(const buffer& input, std::size_t rows, std::size_t weight, buffer& output) {
    const std::size_t columns = columns_of(weight);
    run(rows * columns,
        kernels::linear{input.data(), value(weight), value(weight + 1), inner_of(weight), columns, output.data()});
  }

  // See model.
  template <class OnReady>
  void linear_backward(const buffer& input, const buffer& output_gradient, std::size_t rows, std::size_t weight,
                       buffer& input_gradient, OnReady& on_ready) {
    const std::size_t columns = columns_of(weight);
    const std::size_t inner = inner_of(weight);
    run(columns, kernels::bias_backward{output_gradient.data(), rows, columns, gradient(weight + 1)});
    on_ready(weight + 1);
    run(inner * columns,
        kernels::weight_backward{input.data(), output_gradient.data(), rows, inner, columns, gradient(weight)});
    on_ready(weight);
    run(rows * inner,
        kernels::input_backward{output_gradient.data(), value(weight), inner, columns, input_gradient.data()});
  }

  // Leaves the probabilities, and adds weight * mean to a loss.
  void forward(const device_batch& examples, double weight, which_loss loss) {
    const std::size_t rows = examples.positions.size();
    const std::size_t width = options_.hidden;
    reserve(rows);
    const std::size_t places = rows * options_.context;
    run(places, kernels::gather_context{examples.text.data(), examples.positions.data(), options_.context,
                                        context_symbols_.data()});
    run(places * options_.embedding,
        kernels::embed{context_symbols_.data(), value(embedding_index), options_.embedding, inputs_.data()});
    linear(inputs_, rows, hidden_index, hidden_activation_);
    run(rows * width, kernels::activate{hidden_activation_.data(), nullptr, hidden_output_.data()});
    const buffer* previous = &hidden_output_;
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      block& b = blocks_[i];
      run(rows, kernels::row_statistics{previous->data(), width, b.mean.data(), b.inverse_deviation.data()});
      run(rows * width,
          kernels::normalise{previous->data(), b.mean.data(), b.inverse_deviation.data(), value(scale_of(i)),
                             value(shift_of(i)), width, b.normalised.data(), b.input.data()});
      linear(b.input, rows, weight_of(i), b.activation);
      run(rows * width, kernels::activate{b.activation.data(), previous->data(), b.output.data()});
      previous = &b.output;
    }
    linear(*previous, rows, output_index(), probabilities_);
    run(rows, kernels::cross_entropy{examples.text.data(), examples.positions.data(), symbols_, probabilities_.data(),
                                     row_losses_.data()});
    run(1, kernels::add_mean{row_losses_.data(), rows, weight, losses_.data() + loss});
  }

  template <class OnReady>
  void backward(const device_batch& examples, float gradient_scale, OnReady& on_ready) {
    const std::size_t rows = examples.positions.size();
    const std::size_t width = options_.hidden;
    run(rows * symbols_,
        kernels::cross_entropy_backward{examples.text.data(), examples.positions.data(), symbols_,
                                        gradient_scale / static_cast<float>(rows), probabilities_.data()});
    linear_backward(blocks_.empty() ? hidden_output_ : blocks_.back().output, probabilities_, rows, output_index(),
                    stream_gradient_, on_ready);
    for (std::size_t i = blocks_.size(); i > 0; --i) {
      const std::size_t index = i - 1;
      block& b = blocks_[index];
      run(rows * width,
          kernels::activate_backward{b.activation.data(), stream_gradient_.data(), branch_gradient_.data()});
      linear_backward(b.input, branch_gradient_, rows, weight_of(index), input_gradient_, on_ready);
      run(width, kernels::scale_backward{input_gradient_.data(), b.normalised.data(), rows, width,
                                         gradient(shift_of(index)), gradient(scale_of(index))});
      on_ready(shift_of(index));
      on_ready(scale_of(index));
      const float* scale = value(scale_of(index));
      run(rows, kernels::absorbed_by_row{input_gradient_.data(), scale, b.normalised.data(), width,
                                         absorbed_mean_.data(), absorbed_projection_.data()});
      run(rows * width, kernels::normalise_backward{input_gradient_.data(), scale, b.normalised.data(),
                                                    b.inverse_deviation.data(), absorbed_mean_.data(),
                                                    absorbed_projection_.data(), width, stream_gradient_.data()});
    }
    run(rows * width,
        kernels::activate_backward{hidden_activation_.data(), stream_gradient_.data(), stream_gradient_.data()});
    linear_backward(inputs_, stream_gradient_, rows, hidden_index, input_gradient_, on_ready);
    run(symbols_ * options_.embedding,
        kernels::embed_backward{context_symbols_.data(), input_gradient_.data(), rows * options_.context,
                                options_.embedding, gradient(embedding_index)});
    on_ready(embedding_index);
  }

  model_options options_;
  std::size_t symbols_;
  hfcomm::stream_ref stream_;
  hfcomm::device_event done_;
  // Before the device's memory, so that freeing that waits for the copies from and to these.
  hfcomm::pinned_buffer<float> on_host_;
  hfcomm::pinned_buffer<double> losses_on_host_;
  buffer values_;
  buffer gradients_;
  hfcomm::device_buffer<double> losses_;
  std::vector<device_parameter> parameters_;

  // Working memory, kept from call to call.
  std::size_t capacity_ = 0;
  std::vector<block> blocks_;
  hfcomm::device_buffer<symbol> context_symbols_;
  buffer inputs_;
  buffer hidden_activation_;
  buffer hidden_output_;
  buffer probabilities_;
  buffer stream_gradient_;
  buffer branch_gradient_;
  buffer input_gradient_;
  buffer row_losses_;
  buffer absorbed_mean_;
  buffer absorbed_projection_;
};

}  // namespace char_lm
