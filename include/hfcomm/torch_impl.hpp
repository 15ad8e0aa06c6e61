// SPDX-License-Identifier: MIT
#pragma once

/// All definitions that the headers of <hfcomm/torch.hpp> only declare. Header-only programs get it with that header.
/// In a compiled program one file includes it beside <hfcomm/impl.hpp>:
///
///   // hfcomm_torch.cpp
///   #include <hfcomm/torch_impl.hpp>

#include <hfcomm/torch.hpp>

#include <hfcomm/torch/detail/collectives-inl.hpp>
#include <hfcomm/torch/detail/distributed_data_parallel-inl.hpp>
#include <hfcomm/torch/detail/distributed_sampler-inl.hpp>
#include <hfcomm/torch/detail/messages-inl.hpp>
#include <hfcomm/torch/detail/serialization-inl.hpp>
#include <hfcomm/torch/detail/streams-inl.hpp>
#include <hfcomm/torch/detail/threads-inl.hpp>
