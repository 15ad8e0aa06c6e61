// SPDX-License-Identifier: MIT
#pragma once

#include <torch/torch.h>

// LibTorch's macros of these names; doctest's are wanted. So this comes first in every file with LibTorch.
#undef CHECK
#undef CHECK_EQ
#undef CHECK_GE
#undef CHECK_GT
#undef CHECK_LE
#undef CHECK_LT
#undef CHECK_NE
#include <doctest/doctest.h>
