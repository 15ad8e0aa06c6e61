// SPDX-License-Identifier: MIT
#include <torch/torch.h>

#include <hfcomm/torch.hpp>

int main() {
  torch::nn::Linear net(3, 1);
  hfcomm::torch::distributed_data_parallel ddp(net);
  ddp.forward(torch::ones({1, 3})).sum().backward();
  hfcomm::torch::all_reduce(net->weight);
}
