// SPDX-License-Identifier: MIT
#pragma once

/// All definitions that headers only declare. Header-only programs get it with every entrance. In a compiled program,
/// one file includes it, and HFCOMM_COMPILED is defined for all files (see core/config.hpp):
///
///   // hfcomm.cpp
///   #include <hfcomm/impl.hpp>

#include <hfcomm/comm.hpp>

#include <hfcomm/core/detail/error-inl.hpp>
#include <hfcomm/data/detail/distributed_sampler-inl.hpp>
#include <hfcomm/ddp/detail/accumulate-inl.hpp>
#include <hfcomm/ddp/detail/all_reduce_params-inl.hpp>
#include <hfcomm/ddp/detail/distributed_data_parallel-inl.hpp>
#include <hfcomm/ddp/detail/join-inl.hpp>
