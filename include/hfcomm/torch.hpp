// SPDX-License-Identifier: MIT
#pragma once

/// Training with LibTorch, the C++ frontend of PyTorch: `hfcomm::torch::distributed_data_parallel` around a module,
/// collectives and messages on tensors, and a sampler for its data loaders. For LibTorch 1.13 and later, with g++; the
/// program is compiled and linked as LibTorch asks for.
///
/// The names are in the namespace hfcomm::torch. A file that has `using namespace hfcomm` must therefore write
/// `::torch` for LibTorch's own names.
///
/// In a compiled program (see core/config.hpp) one file includes <hfcomm/torch_impl.hpp>.

// IWYU pragma: begin_exports
#include <hfcomm/comm.hpp>
#include <hfcomm/ddp.hpp>

#include <hfcomm/torch/collectives.hpp>
#include <hfcomm/torch/collectives_async.hpp>
#include <hfcomm/torch/distributed_data_parallel.hpp>
#include <hfcomm/torch/distributed_sampler.hpp>
#include <hfcomm/torch/messages.hpp>
#include <hfcomm/torch/serialization.hpp>
#include <hfcomm/torch/stream_scope.hpp>
#include <hfcomm/torch/threads.hpp>
// IWYU pragma: end_exports

#if !defined(HFCOMM_COMPILED)
#include <hfcomm/torch_impl.hpp>
#endif
