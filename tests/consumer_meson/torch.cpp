// SPDX-License-Identifier: MIT
// The smallest program with LibTorch: a pass of a module, a collective on a tensor, and a message.
#include <torch/torch.h>

#include <hfcomm/torch.hpp>

#if !defined(HFCOMM_COMPILED) && !defined(IS_HEADER_ONLY)
#error "The flags of the compiled way lack -DHFCOMM_COMPILED"
#endif

int main() {
  return hfcomm::launch(2, [] {
    hfcomm::torch::set_threads_for_ranks();
    hfcomm::torch::distributed_data_parallel ddp(torch::nn::Linear(3, 1));
    ddp.forward(torch::full({1, 3}, hfcomm::rank() + 1.0)).sum().backward();
    at::Tensor gradient = ddp.module()->weight.grad().clone();  // the average: 1.5
    hfcomm::torch::all_reduce(gradient);
    if (hfcomm::rank() == 0) {
      hfcomm::torch::send(gradient, 1);
    } else {
      gradient.zero_();
      hfcomm::torch::recv(gradient, 0);
    }
    return at::equal(gradient, torch::full({1, 3}, 3.0)) ? 0 : 1;
  });
}
