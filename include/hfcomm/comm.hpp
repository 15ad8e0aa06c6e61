// SPDX-License-Identifier: MIT
#pragma once

/// The include of every program: groups, collectives, messages and scopes. What not every program pays for has
/// entrances of its own: <hfcomm/ddp.hpp> for training, <hfcomm/machines.hpp> for several machines, and those that need
/// somebody else's headers. Operations on device memory are declared by <hfcomm/nccl.hpp>, which comes along where
/// HFCOMM_NCCL is defined.

// IWYU pragma: begin_exports
#include <hfcomm/core/concepts.hpp>
#include <hfcomm/core/device_span.hpp>
#include <hfcomm/core/element_type.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/float16.hpp>
#include <hfcomm/core/float8.hpp>
#include <hfcomm/core/options.hpp>
#include <hfcomm/core/reduce_op.hpp>
#include <hfcomm/core/shared_buffer.hpp>
#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/core/version.hpp>
#include <hfcomm/core/weighted_mean.hpp>
#include <hfcomm/group/connect.hpp>
#include <hfcomm/group/environment.hpp>
#include <hfcomm/group/launch.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/group/session.hpp>
#include <hfcomm/group/shared_range.hpp>
#include <hfcomm/group/wait.hpp>
#include <hfcomm/group/work.hpp>
#include <hfcomm/group/work_coroutine.hpp>

#include <hfcomm/serialization/encoding.hpp>
#include <hfcomm/serialization/std_types.hpp>

#include <hfcomm/collectives/all_gather.hpp>
#include <hfcomm/collectives/all_gather_v.hpp>
#include <hfcomm/collectives/all_reduce.hpp>
#include <hfcomm/collectives/all_to_all.hpp>
#include <hfcomm/collectives/all_to_all_v.hpp>
#include <hfcomm/collectives/barrier.hpp>
#include <hfcomm/collectives/broadcast.hpp>
#include <hfcomm/collectives/broadcast_object_list.hpp>
#include <hfcomm/collectives/coalesced.hpp>
#include <hfcomm/collectives/collect_results.hpp>
#include <hfcomm/collectives/envelope.hpp>
#include <hfcomm/collectives/exclusive_scan.hpp>
#include <hfcomm/collectives/gather.hpp>
#include <hfcomm/collectives/gather_v.hpp>
#include <hfcomm/collectives/message_batch.hpp>
#include <hfcomm/collectives/part_lists.hpp>
#include <hfcomm/collectives/probe.hpp>
#include <hfcomm/collectives/read_file_dist.hpp>
#include <hfcomm/collectives/received_parts.hpp>
#include <hfcomm/collectives/recv.hpp>
#include <hfcomm/collectives/reduce.hpp>
#include <hfcomm/collectives/reduce_dict.hpp>
#include <hfcomm/collectives/reduce_scatter.hpp>
#include <hfcomm/collectives/scan.hpp>
#include <hfcomm/collectives/scatter.hpp>
#include <hfcomm/collectives/send.hpp>
#include <hfcomm/collectives/send_receive.hpp>
#include <hfcomm/collectives/shared_random_seed.hpp>

#include <hfcomm/data/distributed_sampler.hpp>

#include <hfcomm/scopes/barrier_scope.hpp>
#include <hfcomm/scopes/local_master_first.hpp>
#include <hfcomm/scopes/master_first.hpp>
#include <hfcomm/scopes/master_only.hpp>
#include <hfcomm/scopes/on_rank.hpp>
#include <hfcomm/scopes/print_main.hpp>

#if defined(HFCOMM_NCCL)
#include <hfcomm/nccl.hpp>
#endif
// IWYU pragma: end_exports

#if !defined(HFCOMM_COMPILED)
#include <hfcomm/impl.hpp>
#endif
