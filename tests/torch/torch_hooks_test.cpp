// SPDX-License-Identifier: MIT
#include "nets.hpp"

#include <hfcomm/ddp/power_sgd.hpp>

// Communication hooks with the gradients of LibTorch's modules.

namespace {

using namespace torch_ranks;
namespace ht = hfcomm::torch;

constexpr std::int64_t samples = 12;

/// Returns the gradients of a module after a backward pass over this much of the batch.
template <class Forward>
std::vector<at::Tensor> gradients_of(const torch::nn::Module& module, const Forward& forward, const at::Tensor& x,
                                     const at::Tensor& y) {
  for (const auto& parameter : module.parameters()) {
    if (parameter.grad().defined()) {
      parameter.grad().zero_();
    }
  }
  loss_of(forward(x), y).backward();
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : module.parameters()) {
    gradients.push_back(parameter.grad().clone());
  }
  return gradients;
}

/// Returns the gradients of one process on the whole batch.
template <class Net>
std::vector<at::Tensor> expected_gradients(const at::Tensor& x, const at::Tensor& y) {
  const auto single = make_net<Net>(0, at::kFloat);
  single->eval();
  return gradients_of(*single, [&](const at::Tensor& in) { return single->forward(in); }, x, y);
}

/// Checks `passes` passes with a hook: the ranks' gradients are equal, and their mean over the passes is close to that
/// of one process.
template <class Net>
void check_hook(const process_group& world, const hfcomm::communication_hook& hook, int passes, double tolerance) {
  const at::Tensor x = Net::batch(samples, at::kFloat);
  const at::Tensor y = numbers({samples, 3}, at::kFloat, 2.0);
  const auto expected = expected_gradients<Net>(x, y);
  auto net = make_net<Net>(world.rank(), at::kFloat);
  net->eval();
  ht::distributed_data_parallel ddp(net, {.ddp = {.hook = hook}});
  std::vector<at::Tensor> sums;
  for (int pass = 0; pass < passes; ++pass) {
    const auto found = gradients_of(
        *net, [&](const at::Tensor& in) { return ddp.forward(in); }, share_of(x, world), share_of(y, world));
    for (std::size_t index = 0; index < found.size(); ++index) {
      check_same_tensor(found[index], world);
      pass == 0 ? sums.push_back(found[index]) : void(sums[index] += found[index]);
    }
  }
  for (std::size_t index = 0; index < sums.size(); ++index) {
    CHECK(difference(sums[index] / passes, expected[index]) <= tolerance);
  }
}

/// Checks the hooks that average with a net.
template <class Net>
void check_hooks() {
  at_each_size([](const process_group& world) {
    check_hook<Net>(world, hfcomm::compress_gradients<hfcomm::float16>(), 2, 0x1p-10);
    check_hook<Net>(world, hfcomm::compress_gradients<hfcomm::bfloat16>(), 2, 0x1p-7);
    check_hook<Net>(world, hfcomm::power_sgd({.matrix_rank = 1, .first_pass = 1, .least_compression = 1}), 120, 0.05);
  });
}

// 16-bit gradients are those of one process, rounded. What power_sgd loses in one pass it adds to the following ones.
TEST_CASE("torch hooks: linear layers and layer norm") { check_hooks<mlp>(); }
TEST_CASE("torch hooks: convolution and batch norm with fixed statistics") { check_hooks<cnn>(); }
TEST_CASE("torch hooks: GRU") { check_hooks<recurrent>(); }
TEST_CASE("torch hooks: transformer encoder layer") { check_hooks<encoder>(); }
TEST_CASE("torch hooks: an embedding that is tied to the output") { check_hooks<tied>(); }

TEST_CASE("torch hooks: local_sgd averages within the subgroup only") {
  at_each_size(
      [](const process_group& world) {
        const at::Tensor x = mlp::batch(samples, at::kFloat);
        const at::Tensor y = numbers({samples, 3}, at::kFloat, 2.0);
        const auto expected = expected_gradients<mlp>(share_of(x, world), share_of(y, world));
        auto net = make_net<mlp>(world.rank(), at::kFloat);
        const auto alone = world.split(world.rank(), 0);
        ht::distributed_data_parallel ddp(net, {.ddp = {.hook = hfcomm::local_sgd(alone, 1)}});
        const auto found = gradients_of(
            *net, [&](const at::Tensor& in) { return ddp.forward(in); }, share_of(x, world), share_of(y, world));
        for (std::size_t index = 0; index < found.size(); ++index) {
          CHECK(difference(found[index], expected[index]) <= 1e-6);
        }
      },
      2);
}

}  // namespace
