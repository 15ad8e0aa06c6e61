// SPDX-License-Identifier: MIT
#include "nets.hpp"

namespace {

using namespace torch_ranks;
using hfcomm::peer_error;
using hfcomm::usage_error;
namespace ht = hfcomm::torch;

/// The words of sentences, each of which becomes a number.
struct word_net : torch::nn::Module {
  explicit word_net(bool is_sparse) {
    words = register_module("words", torch::nn::Embedding(torch::nn::EmbeddingOptions(9, 4).sparse(is_sparse)));
    bags = register_module(
        "bags", torch::nn::EmbeddingBag(torch::nn::EmbeddingBagOptions(9, 4).sparse(is_sparse).mode(torch::kSum)));
    last = register_module("last", torch::nn::Linear(4, 3));
  }
  at::Tensor forward(const at::Tensor& x, bool uses_words = true) {
    at::Tensor sum = bags(x);
    return last(uses_words ? sum + words(x).sum(1) : sum);
  }

  torch::nn::Embedding words{nullptr};
  torch::nn::EmbeddingBag bags{nullptr};
  torch::nn::Linear last{nullptr};
};

std::shared_ptr<word_net> make_words(int rank, bool is_sparse) {
  auto net = std::make_shared<word_net>(is_sparse);
  net->to(at::kDouble);
  set_parameters(*net, rank);
  return net;
}

at::Tensor sentences(std::int64_t samples) {
  return at::arange(samples * 3, at::kLong).reshape({samples, 3}).square() % 8;
}

TEST_CASE("torch sparse: gradients of embeddings are averaged as dense ones are") {
  at_each_size([](const process_group& world) {
    const at::Tensor x = sentences(6);
    const at::Tensor y = numbers({6, 3}, at::kDouble);
    auto single = make_words(0, false);
    auto net = make_words(world.rank(), true);
    ht::distributed_data_parallel ddp(net);
    torch::optim::SGD single_optimizer(single->parameters(), 0.5);
    torch::optim::SGD optimizer(net->parameters(), 0.5);
    for (int step = 0; step < 3; ++step) {
      for (int part = 0; part < 2; ++part) {
        loss_of(single->forward(x), y).backward();
      }
      {
        const auto guard = ddp.no_sync();
        loss_of(ddp.forward(share_of(x, world)), share_of(y, world)).backward();
      }
      loss_of(ddp.forward(share_of(x, world)), share_of(y, world)).backward();
      for (const auto& [mine, expected] :
           {std::pair(net->words->weight, single->words->weight), std::pair(net->bags->weight, single->bags->weight)}) {
        REQUIRE(mine.grad().is_sparse());
        CHECK(difference(mine.grad().to_dense(), expected.grad()) < 1e-6);
        check_same_tensor(mine.grad().to_dense(), world);
      }
      CHECK(difference(net->last->weight.grad(), single->last->weight.grad()) < 1e-6);
      single_optimizer.step();
      optimizer.step();
      single_optimizer.zero_grad();
      for (auto& parameter : net->parameters()) {
        parameter.mutable_grad().reset();
      }
      check_same_tensor(net->words->weight, world);
    }
  });
}

TEST_CASE("torch sparse: a rank that uses no row adds nothing, and a gradient that nobody has stays undefined") {
  at_each_size([](const process_group& world) {
    auto net = make_words(0, true);
    ht::distributed_data_parallel ddp(net);
    ddp.forward(sentences(2), false).sum().backward();
    CHECK_FALSE(net->words->weight.grad().defined());
    for (auto& parameter : net->parameters()) {
      parameter.mutable_grad().reset();
    }
    ddp.forward(sentences(2), world.rank() == 0).sum().backward();
    REQUIRE(net->words->weight.grad().defined());
    CHECK(difference(net->words->weight.grad().to_dense() * world.size(), net->bags->weight.grad().to_dense()) < 1e-6);
  });
}

/// An embedding whose gradient is sparse although no module says so.
struct bare_words : torch::nn::Module {
  bare_words() { weight = register_parameter("weight", torch::ones({9, 4})); }
  at::Tensor forward(const at::Tensor& x, bool is_sparse) { return torch::embedding(weight, x, -1, false, is_sparse); }
  at::Tensor weight;
};

TEST_CASE("torch sparse: a sparse gradient that nobody announced is a usage_error, and the next pass works") {
  at_each_size(
      [](const process_group& world) {
        auto net = std::make_shared<bare_words>();
        ht::distributed_data_parallel ddp(net);
        const at::Tensor loss = ddp.forward(sentences(2), world.rank() == 1).sum();
        if (world.rank() == 1) {
          CHECK_CONTAINS(error_of<usage_error>([&] { loss.backward(); }).what(),
                         "the gradient of parameter \"weight\" is sparse; only those of torch::nn::Embedding");
        } else {
          CHECK_CONTAINS(error_of<peer_error>([&] { loss.backward(); }).what(), "\"weight\" is sparse");
        }
        net->weight.mutable_grad().reset();
        ddp.forward(sentences(2), false).sum().backward();
        check_same_tensor(net->weight.grad(), world);
        check_usable(world);
      },
      2);
}

}  // namespace
