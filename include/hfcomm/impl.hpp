// SPDX-License-Identifier: MIT
#pragma once

/// All definitions that headers only declare. Header-only programs get it with every entrance. In a compiled program,
/// one file includes it, and HFCOMM_COMPILED is defined for all files (see core/config.hpp):
///
///   // hfcomm.cpp
///   #include <hfcomm/impl.hpp>

#include <hfcomm/comm.hpp>

#include <hfcomm/call/detail/checks-inl.hpp>
#include <hfcomm/call/detail/device_call-inl.hpp>
#include <hfcomm/call/detail/uneven-inl.hpp>
#include <hfcomm/collectives/detail/barrier-inl.hpp>
#include <hfcomm/collectives/detail/buffer_collectives-inl.hpp>
#include <hfcomm/collectives/detail/coalesced-inl.hpp>
#include <hfcomm/collectives/detail/message_batch-inl.hpp>
#include <hfcomm/core/detail/error-inl.hpp>
#include <hfcomm/device/detail/nccl_group_scope-inl.hpp>
#include <hfcomm/group/detail/checked_call-inl.hpp>

#if defined(HFCOMM_NCCL)
#include <hfcomm/detail/nccl-inl.hpp>
#endif
