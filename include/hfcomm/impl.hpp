// SPDX-License-Identifier: MIT
#pragma once

/// All definitions that headers only declare. Header-only programs get it with every entrance. In a compiled program,
/// one file includes it, and HFCOMM_COMPILED is defined for all files (see core/config.hpp):
///
///   // hfcomm.cpp
///   #include <hfcomm/impl.hpp>

#include <hfcomm/comm.hpp>
#include <hfcomm/group/tuning.hpp>

#include <hfcomm/call/detail/announce_failure-inl.hpp>
#include <hfcomm/call/detail/argument_checks-inl.hpp>
#include <hfcomm/call/detail/async-inl.hpp>
#include <hfcomm/call/detail/typed_calls-inl.hpp>
#include <hfcomm/call/detail/uneven_parts-inl.hpp>
#include <hfcomm/collectives/detail/barrier-inl.hpp>
#include <hfcomm/collectives/detail/broadcast_object_list-inl.hpp>
#include <hfcomm/collectives/detail/buffer_collectives-inl.hpp>
#include <hfcomm/collectives/detail/coalesced_call-inl.hpp>
#include <hfcomm/collectives/detail/collect_parts-inl.hpp>
#include <hfcomm/collectives/detail/collect_results-inl.hpp>
#include <hfcomm/collectives/detail/dictionary_check-inl.hpp>
#include <hfcomm/collectives/detail/dictionary_difference-inl.hpp>
#include <hfcomm/collectives/detail/dictionary_message-inl.hpp>
#include <hfcomm/collectives/detail/exchange_messages-inl.hpp>
#include <hfcomm/collectives/detail/fold_elements-inl.hpp>
#include <hfcomm/collectives/detail/message-inl.hpp>
#include <hfcomm/collectives/detail/message_batch-inl.hpp>
#include <hfcomm/collectives/detail/part_list_calls-inl.hpp>
#include <hfcomm/collectives/detail/prefix-inl.hpp>
#include <hfcomm/collectives/detail/probe-inl.hpp>
#include <hfcomm/collectives/detail/read_file_dist-inl.hpp>
#include <hfcomm/collectives/detail/shared_random_seed-inl.hpp>
#include <hfcomm/core/detail/concat-inl.hpp>
#include <hfcomm/core/detail/error-inl.hpp>
#include <hfcomm/core/detail/plain_list-inl.hpp>
#include <hfcomm/data/detail/distributed_sampler-inl.hpp>
#include <hfcomm/device/detail/device_call-inl.hpp>
#include <hfcomm/device/detail/device_message-inl.hpp>
#include <hfcomm/device/detail/device_work-inl.hpp>
#include <hfcomm/device/detail/nccl_group_scope-inl.hpp>
#include <hfcomm/engine/detail/call_text-inl.hpp>
#include <hfcomm/engine/detail/table_receiver-inl.hpp>
#include <hfcomm/engine/reduction/detail/copy_bytes-inl.hpp>
#include <hfcomm/engine/reduction/detail/kernel-inl.hpp>
#include <hfcomm/engine/reduction/detail/vector_unit-inl.hpp>
#include <hfcomm/engine/shared_memory/detail/operations-inl.hpp>
#include <hfcomm/engine/shared_memory/memory/detail/share_buffer-inl.hpp>
#include <hfcomm/engine/shared_memory/ways/detail/tuning_table-inl.hpp>
#include <hfcomm/group/detail/checked_call-inl.hpp>
#include <hfcomm/group/detail/connect-inl.hpp>
#include <hfcomm/group/detail/environment-inl.hpp>
#include <hfcomm/group/detail/identity-inl.hpp>
#include <hfcomm/group/detail/launch-inl.hpp>
#include <hfcomm/group/detail/launchers-inl.hpp>
#include <hfcomm/group/detail/process_group-inl.hpp>
#include <hfcomm/group/detail/resolve-inl.hpp>
#include <hfcomm/group/detail/root_address-inl.hpp>
#include <hfcomm/group/detail/running_call-inl.hpp>
#include <hfcomm/group/detail/session-inl.hpp>
#include <hfcomm/group/detail/shared_range-inl.hpp>
#include <hfcomm/group/detail/split-inl.hpp>
#include <hfcomm/group/detail/tuning-inl.hpp>
#include <hfcomm/group/detail/wait-inl.hpp>
#include <hfcomm/group/detail/work-inl.hpp>
#include <hfcomm/machine/detail/numa_nodes-inl.hpp>
#include <hfcomm/machine/detail/random_id-inl.hpp>
#include <hfcomm/machine/detail/replace_pages-inl.hpp>
#include <hfcomm/scopes/detail/barrier_scope-inl.hpp>
#include <hfcomm/scopes/detail/master_first-inl.hpp>
#include <hfcomm/scopes/detail/on_rank-inl.hpp>
#include <hfcomm/scopes/detail/print_main-inl.hpp>
#include <hfcomm/serialization/detail/archive-inl.hpp>

#if defined(HFCOMM_NCCL)
#include <hfcomm/detail/nccl-inl.hpp>
#endif

#if defined(HFCOMM_COMPILED)
// Header-only programs get these where they include the header.
#include <hfcomm/collectives/detail/collect_results_in_files-inl.hpp>
#include <hfcomm/ddp/detail/power_sgd-inl.hpp>
#include <hfcomm/detail/ddp-inl.hpp>
#include <hfcomm/detail/machines-inl.hpp>
#include <hfcomm/engine/reduction/detail/kernel_for-inl.hpp>
#include <hfcomm/group/detail/run_ranks-inl.hpp>
#endif
