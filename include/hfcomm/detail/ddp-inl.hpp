// SPDX-License-Identifier: MIT
#pragma once

/// All definitions that <hfcomm/ddp.hpp> only declares.

#include <hfcomm/ddp.hpp>

#include <hfcomm/ddp/detail/accumulate-inl.hpp>
#include <hfcomm/ddp/detail/all_reduce_params-inl.hpp>
#include <hfcomm/ddp/detail/communication_hook-inl.hpp>
#include <hfcomm/ddp/detail/distributed_data_parallel-inl.hpp>
#include <hfcomm/ddp/detail/join-inl.hpp>
#include <hfcomm/ddp/detail/local_sgd-inl.hpp>
