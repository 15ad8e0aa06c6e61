// SPDX-License-Identifier: MIT
#include "nets.hpp"

#include <stdexcept>
#include <thread>

// Ranks as processes. No case of this file may use LibTorch before the ranks are forked.

namespace {

using namespace torch_ranks;
namespace ht = hfcomm::torch;

void require(bool condition, const char* text) {
  if (!condition) {
    throw std::runtime_error(text);
  }
}

TEST_CASE("torch threads: the ranks of a machine divide its cores") {
  const int status = hfcomm::launch(2, [] {
    const int threads = ht::set_threads_for_ranks();
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    require(threads >= 1 && (threads * 2 <= cores || threads == 1), "more threads than cores");
    require(at::get_num_threads() == threads, "LibTorch has another number of threads");
  });
  CHECK(status == 0);
}

TEST_CASE("torch launch: processes that share a batch train as one does on the whole") {
  const int status = hfcomm::launch(3, [] {
    const process_group& world = hfcomm::world();
    const at::Tensor x = mlp::batch(6, at::kDouble);
    const at::Tensor y = numbers({6, 3}, at::kDouble);
    auto single = make_net<mlp>(0, at::kDouble);
    auto net = make_net<mlp>(world.rank(), at::kDouble);
    ht::distributed_data_parallel ddp(net);
    torch::optim::Adam single_optimizer(single->parameters(), 0.01);
    torch::optim::Adam optimizer(net->parameters(), 0.01);
    for (int step = 0; step < 5; ++step) {
      single_optimizer.zero_grad();
      optimizer.zero_grad();
      loss_of(single->forward(x), y).backward();
      loss_of(ddp.forward(share_of(x, world)), share_of(y, world)).backward();
      single_optimizer.step();
      optimizer.step();
    }
    for (std::size_t index = 0; index < net->parameters().size(); ++index) {
      const at::Tensor mine = net->parameters()[index];
      require(difference(mine, single->parameters()[index]) < 1e-6, "other parameters than one process has");
      const auto all = hfcomm::all_gather(bytes_of(mine));
      require(all.front() == all.back(), "the ranks have different parameters");
    }
  });
  CHECK(status == 0);
}

}  // namespace
