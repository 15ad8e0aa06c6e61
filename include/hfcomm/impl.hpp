// SPDX-License-Identifier: MIT
#pragma once

/// All definitions that headers only declare. Header-only programs get it with every entrance. In a compiled program,
/// one file includes it, and HFCOMM_COMPILED is defined for all files (see core/config.hpp):
///
///   // hfcomm.cpp
///   #include <hfcomm/impl.hpp>

#include <hfcomm/comm.hpp>

#include <hfcomm/call/detail/async-inl.hpp>
#include <hfcomm/collectives/detail/message-inl.hpp>
#include <hfcomm/core/detail/error-inl.hpp>
#include <hfcomm/engine/detail/table_receiver-inl.hpp>
#include <hfcomm/group/detail/environment-inl.hpp>
#include <hfcomm/group/detail/identity-inl.hpp>
#include <hfcomm/group/detail/launch-inl.hpp>
#include <hfcomm/group/detail/process_group-inl.hpp>
#include <hfcomm/group/detail/running_call-inl.hpp>
#include <hfcomm/group/detail/session-inl.hpp>
#include <hfcomm/group/detail/split-inl.hpp>
#include <hfcomm/group/detail/work-inl.hpp>

#if defined(HFCOMM_COMPILED)
#include <hfcomm/testing.hpp>

#include <hfcomm/group/detail/run_ranks-inl.hpp>
#endif
