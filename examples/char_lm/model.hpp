// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "char_lm/layers.hpp"
#include "char_lm/linear.hpp"
#include "char_lm/parameter.hpp"
#include "char_lm/random.hpp"
#include "char_lm/vocabulary.hpp"

namespace char_lm {

/// The network's shape. The defaults give about 220 000 parameters.
struct model_options {
  std::size_t context = 16;    ///< characters seen before the one to predict
  std::size_t embedding = 16;  ///< numbers per character
  std::size_t hidden = 256;    ///< width of the hidden layers
  std::size_t blocks = 2;      ///< residual blocks after the first hidden layer; may be 0
};

/// Examples: for each position p, predict text[p] from the characters before it.
/// Each position must be at least the context and below the text's size.
struct batch {
  std::span<const symbol> text;
  std::span<const std::size_t> positions;
};

/// A character model with a hand-written backward pass, float32:
///   embeddings of the context, side by side -> linear, activation -> blocks of h + activation(linear(layer norm(h)))
///   -> linear -> softmax.
/// Not thread-safe, not even for reading: it reuses its working memory. The spans of parameters() survive a move.
class model {
 public:
  /// Equal arguments give bitwise equal parameters. Throws std::invalid_argument for a vocabulary below 2 or above 256
  /// symbols, or a size of 0.
  model(std::size_t vocabulary_size, const model_options& options, std::uint64_t seed)
      : options_(options), symbols_(vocabulary_size) {
    if (vocabulary_size < 2 || vocabulary_size > 256) {
      throw std::invalid_argument("a character model needs a vocabulary of 2 to 256 symbols, not " +
                                  std::to_string(vocabulary_size));
    }
    if (options.context == 0 || options.embedding == 0 || options.hidden == 0) {
      throw std::invalid_argument("the context, the embedding and the hidden layers need a size of at least 1");
    }
    lay_out();
    initialise(seed);
  }
  model(model&&) noexcept = default;
  model& operator=(model&&) noexcept = default;

  [[nodiscard]] const model_options& options() const noexcept { return options_; }
  [[nodiscard]] std::size_t vocabulary_size() const noexcept { return symbols_; }
  /// All parameters, input to output. A bias follows its weight.
  [[nodiscard]] const std::vector<parameter>& parameters() const noexcept { return parameters_; }
  /// How many numbers the parameters have in all.
  [[nodiscard]] std::size_t parameter_count() const noexcept { return values_.size(); }

  void zero_gradients() noexcept { std::fill(gradients_.begin(), gradients_.end(), 0.0F); }

  /// Returns the batch's mean cross entropy in nats and ADDS gradient_scale times that mean's gradient to the
  /// gradients. Calls `on_ready(i)` once for each parameter i, last to first, as soon as this call will not touch its
  /// gradient again. An empty batch has loss 0, adds nothing, and reports all parameters ready: a rank without examples
  /// still takes part in the reduction. Throws std::invalid_argument, before anything is changed, for a position
  /// outside the text or nearer to its start than the context, and for a symbol outside the vocabulary.
  template <std::invocable<std::size_t> OnReady>
  float forward_backward(const batch& examples, float gradient_scale, OnReady&& on_ready) {
    const double loss = forward(examples);
    backward(examples, gradient_scale, on_ready);
    return static_cast<float>(loss);
  }
  float forward_backward(const batch& examples, float gradient_scale = 1.0F) {
    return forward_backward(examples, gradient_scale, [](std::size_t) {});
  }

  /// The mean cross entropy in nats, 0 for no examples. Leaves parameters and gradients alone; works in small pieces,
  /// so any number of examples will do. Throws as forward_backward() does.
  [[nodiscard]] double evaluate(const batch& examples) {
    constexpr std::size_t piece = 256;
    double total = 0.0;
    for (std::size_t first = 0; first < examples.positions.size(); first += piece) {
      const auto positions = examples.positions.subspan(first, std::min(piece, examples.positions.size() - first));
      total += forward({examples.text, positions}) * static_cast<double>(positions.size());
    }
    return examples.positions.empty() ? 0.0 : total / static_cast<double>(examples.positions.size());
  }

  /// The probability of each symbol to come after `history`, of which exactly the last options().context symbols count.
  /// The result is valid until the next call. Throws std::invalid_argument for a shorter history. The symbols must be
  /// below vocabulary_size().
  [[nodiscard]] std::span<const float> predict(std::span<const symbol> history) {
    if (history.size() < options_.context) {
      throw std::invalid_argument("a prediction needs " + std::to_string(options_.context) + " characters before it");
    }
    embed(history, history.size(), 0, 1);
    run_layers(1);
    softmax({probabilities_.data(), symbols_});
    return {probabilities_.data(), symbols_};
  }

 private:
  // Positions of a layer's parameters in parameters_.
  struct block {
    std::size_t scale, shift, weight, bias;
    norm_record norm;
    std::vector<float> input;       // normalised, scaled and shifted
    std::vector<float> activation;  // before the activation function
    std::vector<float> output;
  };

  [[nodiscard]] std::size_t input_width() const noexcept { return options_.context * options_.embedding; }
  [[nodiscard]] const float* value(std::size_t i) const { return parameters_[i].value.data(); }
  [[nodiscard]] float* gradient(std::size_t i) const { return parameters_[i].gradient.data(); }

  void lay_out() {
    std::vector<std::pair<std::string, std::size_t>> sizes;
    const auto add = [&](const std::string& name, std::size_t size) {
      sizes.emplace_back(name, size);
      return sizes.size() - 1;
    };
    const std::size_t width = options_.hidden;
    embedding_ = add("embedding", symbols_ * options_.embedding);
    hidden_ = add("hidden.weight", input_width() * width);
    add("hidden.bias", width);
    blocks_.resize(options_.blocks);
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      const std::string prefix = "block" + std::to_string(b) + '.';
      blocks_[b].scale = add(prefix + "scale", width);
      blocks_[b].shift = add(prefix + "shift", width);
      blocks_[b].weight = add(prefix + "weight", width * width);
      blocks_[b].bias = add(prefix + "bias", width);
    }
    output_ = add("output.weight", width * symbols_);
    add("output.bias", symbols_);

    std::size_t total = 0;
    for (const auto& entry : sizes)
      total += entry.second;
    values_.assign(total, 0.0F);
    gradients_.assign(total, 0.0F);
    std::size_t offset = 0;
    for (auto& [name, size] : sizes) {
      parameters_.push_back(
          {std::move(name), std::span(values_).subspan(offset, size), std::span(gradients_).subspan(offset, size)});
      offset += size;
    }
  }

  void initialise(std::uint64_t seed) {
    random_source random(mix(seed));
    // Uniform with the given standard deviation; what is not drawn here starts at 0, the norms' scales at 1.
    const auto draw = [&](std::size_t index, double deviation) {
      const auto bound = static_cast<float>(deviation * std::sqrt(3.0));
      for (float& v : parameters_[index].value)
        v = random.uniform(bound);
    };
    const auto width = static_cast<double>(options_.hidden);
    draw(embedding_, 1.0);
    draw(hidden_, std::sqrt(2.0 / static_cast<double>(input_width())));
    for (const auto& b : blocks_) {
      std::fill(parameters_[b.scale].value.begin(), parameters_[b.scale].value.end(), 1.0F);
      draw(b.weight, std::sqrt(2.0 / width));
    }
    // Small, so that the first predictions are nearly uniform.
    draw(output_, 0.1 / std::sqrt(width));
  }

  // Row `row` of the network's input: the embeddings of the `context` symbols before `position`.
  void embed(std::span<const symbol> text, std::size_t position, std::size_t row, std::size_t rows) {
    inputs_.resize(rows * input_width());
    float* target = inputs_.data() + row * input_width();
    for (std::size_t i = position - options_.context; i < position; ++i, target += options_.embedding) {
      std::copy_n(value(embedding_) + text[i] * options_.embedding, options_.embedding, target);
    }
  }

  // output = input * weight + bias, the bias being the parameter after the weight.
  void linear(const std::vector<float>& input, std::size_t rows, std::size_t weight, std::vector<float>& output) {
    const std::size_t columns = parameters_[weight + 1].value.size();
    const std::size_t inner = parameters_[weight].value.size() / columns;
    output.resize(rows * columns);
    fill_rows(value(weight + 1), rows, columns, output.data());
    multiplier_.multiply_add(matrix_view::dense(input.data(), rows, inner),
                             matrix_view::dense(value(weight), inner, columns), output.data());
  }

  // Adds to the gradients of the bias, then of the weight, then sets the input's. Both parameters are reported before
  // the input's gradient is computed, which gives their reduction that much more time.
  template <class OnReady>
  void linear_backward(const std::vector<float>& input, const std::vector<float>& output_gradient, std::size_t rows,
                       std::size_t weight, std::vector<float>& input_gradient, OnReady& on_ready) {
    const std::size_t columns = parameters_[weight + 1].value.size();
    const std::size_t inner = parameters_[weight].value.size() / columns;
    const auto outputs = matrix_view::dense(output_gradient.data(), rows, columns);
    add_rows(output_gradient.data(), rows, columns, gradient(weight + 1));
    on_ready(weight + 1);
    multiplier_.multiply_add(matrix_view::dense(input.data(), rows, inner).transposed(), outputs, gradient(weight));
    on_ready(weight);
    input_gradient.assign(rows * inner, 0.0F);
    multiplier_.multiply_add(outputs, matrix_view::dense(value(weight), inner, columns).transposed(),
                             input_gradient.data());
  }

  // From inputs_ to logits, which it leaves in probabilities_.
  void run_layers(std::size_t rows) {
    linear(inputs_, rows, hidden_, hidden_activation_);
    hidden_output_.resize(hidden_activation_.size());
    std::transform(hidden_activation_.begin(), hidden_activation_.end(), hidden_output_.begin(), activate);
    const std::vector<float>* previous = &hidden_output_;
    for (auto& b : blocks_) {
      b.input.resize(previous->size());
      layer_norm(*previous, parameters_[b.scale].value, parameters_[b.shift].value, b.norm, b.input);
      linear(b.input, rows, b.weight, b.activation);
      b.output.resize(previous->size());
      std::transform(b.activation.begin(), b.activation.end(), previous->begin(), b.output.begin(),
                     [](float x, float residual) { return residual + activate(x); });
      previous = &b.output;
    }
    linear(*previous, rows, output_, probabilities_);
  }

  void check(const batch& examples) const {
    for (const std::size_t position : examples.positions) {
      if (position < options_.context || position >= examples.text.size()) {
        throw std::invalid_argument("position " + std::to_string(position) + " is outside [" +
                                    std::to_string(options_.context) + ", " + std::to_string(examples.text.size()) +
                                    ')');
      }
      const auto used = examples.text.subspan(position - options_.context, options_.context + 1);
      const symbol largest = *std::max_element(used.begin(), used.end());
      if (largest >= symbols_) {
        throw std::invalid_argument("symbol " + std::to_string(largest) + " is outside the vocabulary of " +
                                    std::to_string(symbols_));
      }
    }
  }

  // Returns the mean loss; leaves the probabilities in probabilities_.
  double forward(const batch& examples) {
    const std::size_t rows = examples.positions.size();
    check(examples);
    if (rows == 0)
      return 0.0;
    for (std::size_t row = 0; row < rows; ++row)
      embed(examples.text, examples.positions[row], row, rows);
    run_layers(rows);
    double total = 0.0;
    for (std::size_t row = 0; row < rows; ++row) {
      const std::span<float> logits(probabilities_.data() + row * symbols_, symbols_);
      const float target = logits[examples.text[examples.positions[row]]];
      total += static_cast<double>(softmax(logits) - target);
    }
    return total / static_cast<double>(rows);
  }

  template <class OnReady>
  void backward(const batch& examples, float gradient_scale, OnReady& on_ready) {
    const std::size_t rows = examples.positions.size();
    if (rows == 0) {
      for (std::size_t i = parameters_.size(); i > 0; --i)
        on_ready(i - 1);
      return;
    }
    // The loss's gradient with respect to the logits: probabilities less 1 at the target.
    const float scale = gradient_scale / static_cast<float>(rows);
    for (std::size_t row = 0; row < rows; ++row) {
      float* p = probabilities_.data() + row * symbols_;
      p[examples.text[examples.positions[row]]] -= 1.0F;
      for (std::size_t i = 0; i < symbols_; ++i)
        p[i] *= scale;
    }
    const auto& last = blocks_.empty() ? hidden_output_ : blocks_.back().output;
    linear_backward(last, probabilities_, rows, output_, stream_gradient_, on_ready);
    for (std::size_t i = blocks_.size(); i > 0; --i) {
      auto& b = blocks_[i - 1];
      // The stream's gradient passes by the block unchanged, and through it by way of this copy.
      branch_gradient_ = stream_gradient_;
      activate_backward(b.activation, branch_gradient_);
      linear_backward(b.input, branch_gradient_, rows, b.weight, input_gradient_, on_ready);
      layer_norm_backward(input_gradient_, parameters_[b.scale].value, b.norm, parameters_[b.shift].gradient,
                          parameters_[b.scale].gradient, stream_gradient_);
      on_ready(b.shift);
      on_ready(b.scale);
    }
    activate_backward(hidden_activation_, stream_gradient_);
    linear_backward(inputs_, stream_gradient_, rows, hidden_, input_gradient_, on_ready);
    const float* source = input_gradient_.data();
    for (const std::size_t position : examples.positions) {
      for (std::size_t i = position - options_.context; i < position; ++i, source += options_.embedding) {
        add_rows(source, 1, options_.embedding, gradient(embedding_) + examples.text[i] * options_.embedding);
      }
    }
    on_ready(embedding_);
  }

  model_options options_;
  std::size_t symbols_;
  std::vector<float> values_;
  std::vector<float> gradients_;
  std::vector<parameter> parameters_;
  std::size_t embedding_ = 0;
  std::size_t hidden_ = 0;
  std::size_t output_ = 0;

  // Working memory, kept from call to call.
  matrix_multiplier multiplier_;
  std::vector<block> blocks_;
  std::vector<float> inputs_;
  std::vector<float> hidden_activation_;
  std::vector<float> hidden_output_;
  std::vector<float> probabilities_;
  std::vector<float> stream_gradient_;
  std::vector<float> branch_gradient_;
  std::vector<float> input_gradient_;
};

}  // namespace char_lm
