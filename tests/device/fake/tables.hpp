// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/cuda/nccl_api.hpp>
#include <hfcomm/cuda/runtime_api.hpp>

namespace fake_cuda {

/// The double's functions as hfcomm's tables. They have a source file of their own, because collectives of all types
/// take long to compile.
const hfcomm::cuda::runtime_api& runtime_table();
const hfcomm::cuda::nccl_api& nccl_table();

}  // namespace fake_cuda
