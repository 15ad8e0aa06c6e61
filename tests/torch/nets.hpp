// SPDX-License-Identifier: MIT
#pragma once

#include "torch_ranks.hpp"

/// Small models of the usual kinds, which take a batch whose first dimension is the samples.
namespace torch_ranks {

struct mlp : torch::nn::Module {
  mlp() {
    first = register_module("first", torch::nn::Linear(6, 16));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({16})));
    second = register_module("second", torch::nn::Linear(16, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return second(torch::tanh(norm(first(x)))); }
  static at::Tensor batch(std::int64_t samples, at::ScalarType type) { return numbers({samples, 6}, type); }

  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::nn::LayerNorm norm{nullptr};
};

struct cnn : torch::nn::Module {
  cnn() {
    convolution = register_module("convolution", torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 4, 3).padding(1)));
    norm = register_module("norm", torch::nn::BatchNorm2d(4));
    last = register_module("last", torch::nn::Linear(4 * 25, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return last(torch::relu(norm(convolution(x))).flatten(1)); }
  static at::Tensor batch(std::int64_t samples, at::ScalarType type) { return numbers({samples, 2, 5, 5}, type); }

  torch::nn::Conv2d convolution{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear last{nullptr};
};

struct recurrent : torch::nn::Module {
  recurrent() {
    gru = register_module("gru", torch::nn::GRU(torch::nn::GRUOptions(5, 8).batch_first(true)));
    last = register_module("last", torch::nn::Linear(8, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return last(std::get<0>(gru(x)).select(1, -1)); }
  static at::Tensor batch(std::int64_t samples, at::ScalarType type) { return numbers({samples, 4, 5}, type); }

  torch::nn::GRU gru{nullptr};
  torch::nn::Linear last{nullptr};
};

struct encoder : torch::nn::Module {
  encoder() {
    layer =
        register_module("layer", torch::nn::TransformerEncoderLayer(
                                     torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0)));
    last = register_module("last", torch::nn::Linear(8, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return last(layer(x.transpose(0, 1)).mean(0)); }
  static at::Tensor batch(std::int64_t samples, at::ScalarType type) { return numbers({samples, 4, 8}, type); }

  torch::nn::TransformerEncoderLayer layer{nullptr};
  torch::nn::Linear last{nullptr};
};

/// An embedding whose weight is also that of the output, under two names.
struct tied : torch::nn::Module {
  tied() {
    words = register_module("words", torch::nn::Embedding(3, 6));
    register_parameter("output_weight", words->weight);
    bias = register_parameter("bias", torch::zeros({3}));
  }
  at::Tensor forward(const at::Tensor& x) { return torch::linear(words(x).mean(1), words->weight, bias); }
  static at::Tensor batch(std::int64_t samples, at::ScalarType /*type*/) {
    return at::arange(samples * 5, at::kLong).reshape({samples, 5}).square() % 3;
  }

  torch::nn::Embedding words{nullptr};
  at::Tensor bias;
};

/// Embeddings of which one is for samples that begin with word 0 only, and one is never used.
struct partly_used : torch::nn::Module {
  partly_used() {
    words = register_module("words", torch::nn::Embedding(3, 6));
    rare = register_module("rare", torch::nn::Embedding(3, 3));
    never = register_module("never", torch::nn::Embedding(2, 2));
    last = register_module("last", torch::nn::Linear(6, 3));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor sum = last(words(x).mean(1));
    const at::Tensor chosen = x.select(1, 0).eq(0).nonzero().squeeze(1);
    return chosen.numel() == 0 ? sum : sum.index_add(0, chosen, rare(x.index_select(0, chosen)).mean(1));
  }
  /// The first quarter of the samples begins with word 0.
  static at::Tensor batch(std::int64_t samples, at::ScalarType type) {
    at::Tensor words = tied::batch(samples, type).clone();
    words.select(1, 0).copy_(at::arange(samples, at::kLong).ge(samples / 4));
    return words;
  }

  torch::nn::Embedding words{nullptr}, rare{nullptr}, never{nullptr};
  torch::nn::Linear last{nullptr};
};

/// Two linear layers, each of which a forward may leave out.
struct two_parts : torch::nn::Module {
  two_parts() {
    one = register_module("one", torch::nn::Linear(4, 2));
    other = register_module("other", torch::nn::Linear(4, 2));
  }
  at::Tensor forward(const at::Tensor& x, bool uses_one, bool uses_other) {
    at::Tensor sum = x.sum();
    sum = uses_one ? sum + one(x).sum() : sum;
    return uses_other ? sum + other(x).sum() : sum;
  }

  torch::nn::Linear one{nullptr}, other{nullptr};
};

/// Returns a model in which each rank has other parameters.
template <class Net>
std::shared_ptr<Net> make_net(int rank, at::ScalarType type = at::kFloat) {
  auto net = std::make_shared<Net>();
  net->to(type);
  set_parameters(*net, rank);
  return net;
}

inline at::Tensor loss_of(const at::Tensor& output, const at::Tensor& target) {
  return (output - target).pow(2).mean();
}

}  // namespace torch_ranks
