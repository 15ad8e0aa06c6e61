// SPDX-License-Identifier: MIT
// The program of torch.cpp without hfcomm.
#include <torch/torch.h>

int main() {
  torch::nn::Linear net(3, 1);
  net->forward(torch::ones({1, 3})).sum().backward();
}
