// SPDX-License-Identifier: MIT
#include <torch/torch.h>

int main() {}
