// SPDX-License-Identifier: MIT
#include "nets.hpp"

// Ranks that share a batch train as one process does on the whole batch.

namespace {

using namespace torch_ranks;
namespace ht = hfcomm::torch;

/// Returns the gradients of one process on the whole batch, and steps its optimizer.
template <class Net>
std::vector<at::Tensor> reference_step(Net& net, torch::optim::SGD& optimizer, const at::Tensor& x,
                                       const at::Tensor& y) {
  optimizer.zero_grad();
  loss_of(net.forward(x), y).backward();
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : net.parameters()) {
    gradients.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::Tensor());
  }
  optimizer.step();
  return gradients;
}

template <class Net>
void check_parity(const process_group& world, at::ScalarType type, bool accumulates, bool finds_unused) {
  constexpr std::int64_t samples = 12;
  const double tolerance = type == at::kDouble ? 1e-6 : 1e-5;
  const at::Tensor x = Net::batch(samples, type);
  const at::Tensor y = numbers({samples, 3}, type, 2.0);
  auto single = make_net<Net>(0, type);
  auto net = make_net<Net>(world.rank(), type);
  single->eval();  // a rank's own statistics of a batch are not those of the whole
  net->eval();
  ht::distributed_data_parallel ddp(
      net, {.ddp = {.first_bucket_bytes = 200, .bucket_bytes = 1'000, .find_unused_parameters = finds_unused}});
  torch::optim::SGD single_optimizer(single->parameters(), 0.1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int step = 0; step < 3; ++step) {
    const auto expected = reference_step(*single, single_optimizer, x, y);
    optimizer.zero_grad();
    const at::Tensor my_x = share_of(x, world);
    const at::Tensor my_y = share_of(y, world);
    if (accumulates) {
      const std::int64_t half = my_x.size(0) / 2;
      {
        const auto guard = ddp.no_sync();
        (loss_of(ddp.forward(my_x.narrow(0, 0, half)), my_y.narrow(0, 0, half)) / 2).backward();
      }
      (loss_of(ddp.forward(my_x.narrow(0, half, half)), my_y.narrow(0, half, half)) / 2).backward();
    } else {
      loss_of(ddp.forward(my_x), my_y).backward();
    }
    const auto parameters = net->parameters();
    REQUIRE(parameters.size() == expected.size());
    for (std::size_t index = 0; index < parameters.size(); ++index) {
      REQUIRE(parameters[index].grad().defined() == expected[index].defined());
      if (!expected[index].defined()) {
        continue;
      }
      check_same_tensor(parameters[index].grad(), world);
      // Later steps start from parameters that differ already.
      CHECK(difference(parameters[index].grad(), expected[index]) <= (step == 0 ? tolerance : 20 * tolerance));
    }
    optimizer.step();
    for (const auto& parameter : parameters) {
      check_same_tensor(parameter, world);
    }
  }
}

template <class Net>
void check_parity(bool finds_unused = false) {
  at_each_size([&](const process_group& world) {
    for (const auto type : {at::kDouble, at::kFloat}) {
      for (const bool accumulates : {false, true}) {
        check_parity<Net>(world, type, accumulates, finds_unused);
      }
    }
  });
}

TEST_CASE("torch parity: linear layers and layer norm") { check_parity<mlp>(); }
TEST_CASE("torch parity: convolution and batch norm with fixed statistics") { check_parity<cnn>(); }
TEST_CASE("torch parity: GRU") { check_parity<recurrent>(); }
TEST_CASE("torch parity: transformer encoder layer") { check_parity<encoder>(); }
TEST_CASE("torch parity: an embedding that is tied to the output") { check_parity<tied>(); }
TEST_CASE("torch parity: embeddings that one rank uses, and that none uses") { check_parity<partly_used>(true); }

}  // namespace
