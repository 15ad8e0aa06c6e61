// SPDX-License-Identifier: MIT
#pragma once

/// Data-parallel training: `distributed_data_parallel`, its hooks, `accumulate`, `join_scope` and reductions of all
/// parameters of a model. <hfcomm/torch.hpp> includes it.

// IWYU pragma: begin_exports
#include <hfcomm/comm.hpp>

#include <hfcomm/ddp/accumulate.hpp>
#include <hfcomm/ddp/all_reduce_params.hpp>
#include <hfcomm/ddp/communication_hook.hpp>
#include <hfcomm/ddp/distributed_data_parallel.hpp>
#include <hfcomm/ddp/join.hpp>
#include <hfcomm/ddp/local_sgd.hpp>
// IWYU pragma: end_exports

#if !defined(HFCOMM_COMPILED)
#include <hfcomm/detail/ddp-inl.hpp>
#endif
