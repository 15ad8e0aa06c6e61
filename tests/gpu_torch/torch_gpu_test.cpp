// SPDX-License-Identifier: MIT
// Modules and tensors of LibTorch on a GPU, with processes as ranks that share it.
#include "../torch/torch_doctest.hpp"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "../gpu/ranks.hpp"

#include <hfcomm/torch.hpp>

namespace {

using namespace hfcomm;
using gpu::require;
namespace ht = hfcomm::torch;

constexpr std::int64_t samples = 48;

at::Tensor numbers(std::vector<std::int64_t> sizes, double first) {
  const at::Tensor all = at::empty(sizes);
  return at::sin(at::arange(all.numel(), at::kFloat) * 0.37 + first).reshape(sizes).to(at::kCUDA);
}

struct net : ::torch::nn::Module {
  net() {
    first = register_module("first", ::torch::nn::Linear(32, 64));
    norm = register_module("norm", ::torch::nn::LayerNorm(::torch::nn::LayerNormOptions({64})));
    last = register_module("last", ::torch::nn::Linear(64, 8));
    steps = register_buffer("steps", at::zeros({1}));
  }
  at::Tensor forward(const at::Tensor& x) { return last(::torch::tanh(norm(first(x)))); }

  ::torch::nn::Linear first{nullptr}, last{nullptr};
  ::torch::nn::LayerNorm norm{nullptr};
  at::Tensor steps;
};

std::shared_ptr<net> make_net(int seed) {
  ::torch::manual_seed(static_cast<std::uint64_t>(seed));
  auto made = std::make_shared<net>();
  made->to(at::kCUDA);
  return made;
}

at::Tensor loss_of(const at::Tensor& found, const at::Tensor& wanted) {
  return ::torch::nn::functional::mse_loss(found, wanted);
}

at::Tensor share_of(const at::Tensor& batch) {
  const std::int64_t each = batch.size(0) / world_size();
  return batch.narrow(0, rank() * each, each);
}

double difference(const at::Tensor& one, const at::Tensor& other) { return (one - other).abs().max().item<double>(); }

void require_equal_on_all(const at::Tensor& tensor, const std::string& what) {
  const auto all = all_gather(tensor.detach().cpu());
  for (const auto& one : all) {
    require(at::equal(one, all[0]), what + " differs among the ranks");
  }
}

/// Ranks that share a batch train as one process does on the whole batch.
void check_training(ddp_options options) {
  const at::Tensor x = numbers({samples, 32}, 0);
  const at::Tensor y = numbers({samples, 8}, 1);
  const auto alone = make_net(0);
  const auto shared = make_net(rank());  // the wrapper gives all ranks rank 0's parameters
  options.first_bucket_bytes = 4'000;
  options.bucket_bytes = 10'000;
  ht::distributed_data_parallel ddp(shared, {.ddp = options});
  ::torch::optim::SGD alone_optimizer(alone->parameters(), 0.1);
  ::torch::optim::SGD optimizer(shared->parameters(), 0.1);
  const double first_loss = loss_of(alone->forward(x), y).item<double>();
  for (int step = 0; step < 5; ++step) {
    alone_optimizer.zero_grad();
    loss_of(alone->forward(x), y).backward();
    optimizer.zero_grad();
    loss_of(ddp.forward(share_of(x)), share_of(y)).backward();
    const auto expected = alone->parameters();
    const auto found = shared->parameters();
    for (std::size_t index = 0; index < found.size(); ++index) {
      const std::string name = "gradient " + std::to_string(index) + " of step " + std::to_string(step);
      require(found[index].grad().is_cuda(), name + " is not on the device");
      const double off = difference(found[index].grad(), expected[index].grad());
      require(off < 1e-5, name + " is off by " + std::to_string(off));
      require_equal_on_all(found[index].grad(), name);
    }
    alone_optimizer.step();
    optimizer.step();
  }
  require(loss_of(shared->forward(x), y).item<double>() < first_loss, "nothing was learned");
}

TEST_CASE("torch on a GPU: gradients over NCCL are those of one process on the whole batch") {
  gpu::at_two_and_four("torch on a GPU: gradients over NCCL are those of one process on the whole batch",
                       [](const gpu::stream& /*stream*/) {
                         check_training({});
                         // Everything on a stream of LibTorch's pool, which does not wait for the default one.
                         const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
                         check_training({});
                       });
}

TEST_CASE("torch on a GPU: gradients that the CPU averages are those of one process on the whole batch") {
  for (const int ranks : {1, 2, 4}) {
    gpu::run_ranks("torch", ranks, [](const gpu::stream& /*stream*/) {
      ddp_options options;
      options.host_reduce = true;
      check_training(options);
      const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
      check_training(options);
    });
  }
}

TEST_CASE("torch on a GPU: collectives run on LibTorch's current stream, and return at once") {
  gpu::at_two_and_four(
      "torch on a GPU: collectives run on LibTorch's current stream, and return at once",
      [](const gpu::stream& /*stream*/) {
        connect_device();
        const auto ranks = static_cast<double>(world_size());
        const auto pool = c10::cuda::getStreamFromPool();
        const c10::cuda::CUDAStreamGuard guard(pool);
        at::Tensor sums = at::full({1'000'000}, rank() + 1.0, at::device(at::kCUDA));
        at::Tensor parts = at::empty({world_size(), 1000}, at::device(at::kCUDA));
        const at::Tensor own = at::full({1000}, rank() + 0.5, at::device(at::kCUDA));
        const auto put_all_on_stream = [&] {
          sums.fill_(rank() + 1.0);
          sums.mul_(2);
          ht::all_reduce(sums);
          sums.add_(1);
          ht::all_gather(own, parts);
        };
        put_all_on_stream();  // so that all kernels are loaded, and NCCL has allocated what it needs
        pool.synchronize();
        parts.zero_();
        {
          const gpu::gate held(stream_ref(pool.stream()));
          put_all_on_stream();
          require(!pool.query(), "a collective has waited for the stream");
        }
        require(at::equal(sums.cpu(), at::full({1'000'000}, ranks * (ranks + 1) + 1)), "other sums");
        require(at::equal(parts.cpu(), (at::arange(world_size()).to(at::kFloat) + 0.5).unsqueeze(1).expand({-1, 1000})),
                "other parts");
        const at::Tensor half = at::full({100}, rank() + 1.0, at::device(at::kCUDA).dtype(at::kBFloat16));
        ht::all_reduce(half, reduce_op::max);
        require(at::equal(half.cpu(), at::full({100}, ranks, at::kBFloat16)), "another maximum");
      });
}

TEST_CASE("torch on a GPU: a tensor on a device is refused as an object on every rank, and its copy is sent") {
  gpu::run_ranks("torch", 2, [](const gpu::stream& /*stream*/) {
    const at::Tensor own = numbers({3, rank() + 1}, rank());
    const auto problem = gpu::expect_error<usage_error>([&] { (void)all_gather(own); });
    require(gpu::says(problem, "host memory"), problem.what());
    const auto all = all_gather(own.cpu());
    require(at::equal(all[1], numbers({3, 2}, 1).cpu()), "another tensor");
  });
}

}  // namespace
