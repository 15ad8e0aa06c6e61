// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/cuda/nccl_api.hpp>
#include <hfcomm/cuda/runtime_api.hpp>

namespace fake_cuda {

/// The fake's functions, as hfcomm wants them. In a file of their own (tables.cpp), because they take long to compile:
/// collectives of all types.
const hfcomm::cuda::runtime_api& runtime_table();
const hfcomm::cuda::nccl_api& nccl_table();

}  // namespace fake_cuda
