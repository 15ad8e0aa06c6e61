// SPDX-License-Identifier: MIT
#pragma once

/// All definitions that headers only declare. Header-only programs get it with every entrance. In a compiled program,
/// one file includes it, and HFCOMM_COMPILED is defined for all files (see core/config.hpp):
///
///   // hfcomm.cpp
///   #include <hfcomm/impl.hpp>

#include <hfcomm/comm.hpp>

#include <hfcomm/call/detail/refuse-inl.hpp>
#include <hfcomm/collectives/detail/broadcast_object_list-inl.hpp>
#include <hfcomm/collectives/detail/coalesced_call-inl.hpp>
#include <hfcomm/collectives/detail/collect_results-inl.hpp>
#include <hfcomm/collectives/detail/dictionary_difference-inl.hpp>
#include <hfcomm/collectives/detail/dictionary_message-inl.hpp>
#include <hfcomm/collectives/detail/fold_elements-inl.hpp>
#include <hfcomm/collectives/detail/message-inl.hpp>
#include <hfcomm/collectives/detail/read_file_dist-inl.hpp>
#include <hfcomm/collectives/detail/shared_random_seed-inl.hpp>
#include <hfcomm/collectives/detail/sized_part-inl.hpp>
#include <hfcomm/core/detail/error-inl.hpp>
#include <hfcomm/engine/detail/call_text-inl.hpp>
#include <hfcomm/machine/detail/random_id-inl.hpp>
#include <hfcomm/scopes/detail/barrier_scope-inl.hpp>
#include <hfcomm/scopes/detail/master_first-inl.hpp>
#include <hfcomm/scopes/detail/on_rank-inl.hpp>
#include <hfcomm/scopes/detail/print_main-inl.hpp>
#include <hfcomm/serialization/detail/archive-inl.hpp>

#if defined(HFCOMM_COMPILED)
// Header-only programs get it where they include its header.
#include <hfcomm/collectives/detail/collect_results_in_files-inl.hpp>
#endif
