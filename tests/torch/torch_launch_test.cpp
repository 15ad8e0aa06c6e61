// SPDX-License-Identifier: MIT
#include "nets.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "../process/processes.hpp"

// Ranks as processes. No case of this file may use LibTorch before the ranks are forked.

namespace {

using namespace torch_ranks;
namespace ht = hfcomm::torch;

void require(bool condition, const char* text) {
  if (!condition) {
    throw std::runtime_error(text);
  }
}

/// Returns the number of cores that this process may use.
int usable_cores() {
  cpu_set_t cores;
  require(::sched_getaffinity(0, sizeof(cores), &cores) == 0, "the cores are unknown");
  return CPU_COUNT(&cores);
}

TEST_CASE("torch threads: the ranks of a machine divide its cores") {
  CHECK(ht::detail::threads_of_rank(8, 1) == 8);
  CHECK(ht::detail::threads_of_rank(8, 2) == 4);
  CHECK(ht::detail::threads_of_rank(7, 2) == 3);
  CHECK(ht::detail::threads_of_rank(2, 3) == 1);
  const auto check_threads = [](int ranks) {
    const int expected = std::max(usable_cores() / ranks, 1);
    require(ht::set_threads_for_ranks() == expected, "a wrong number of threads");
    require(at::get_num_threads() == expected, "LibTorch has another number of threads");
  };
  CHECK(hfcomm::launch(2, [&] { check_threads(2); }) == 0);
  processes::child_processes alone(1, [&](int /*index*/) { check_threads(1); });
  CHECK(alone.wait(std::chrono::seconds(30)).front().exited_with(0));
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
