// SPDX-License-Identifier: MIT
// The second file of the compiled way, for programs with LibTorch. Like every other file of the program it is compiled
// with -DHFCOMM_COMPILED.
#include <hfcomm/torch_impl.hpp>
