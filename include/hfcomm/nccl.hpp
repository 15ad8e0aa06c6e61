// SPDX-License-Identifier: MIT
#pragma once

/// Operations on device memory, over NCCL: needs the headers of CUDA and NCCL. <hfcomm/comm.hpp> includes it where
/// HFCOMM_NCCL is defined, which the Meson option `nccl` sees to. None of it calls a function of the two libraries by
/// name, so there is nothing to link with.
///
/// Header-only, the engine comes along with this header, and one file of a program is enough for all. In a compiled
/// program, the file that includes <hfcomm/impl.hpp> has HFCOMM_NCCL defined.

// IWYU pragma: begin_exports
#include <hfcomm/comm.hpp>

#include <hfcomm/core/device_span.hpp>
#include <hfcomm/core/nccl_options.hpp>
#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/cuda/copy.hpp>
#include <hfcomm/cuda/device_buffer.hpp>
#include <hfcomm/cuda/device_event.hpp>
#include <hfcomm/cuda/element_types.hpp>
#include <hfcomm/cuda/pinned_buffer.hpp>
#include <hfcomm/device/all_gather.hpp>
#include <hfcomm/device/all_reduce.hpp>
#include <hfcomm/device/all_to_all.hpp>
#include <hfcomm/device/barrier.hpp>
#include <hfcomm/device/broadcast.hpp>
#include <hfcomm/device/connect_device.hpp>
#include <hfcomm/device/device_watch.hpp>
#include <hfcomm/device/device_work.hpp>
#include <hfcomm/device/gather.hpp>
#include <hfcomm/device/messages.hpp>
#include <hfcomm/device/nccl_group_scope.hpp>
#include <hfcomm/device/reduce.hpp>
#include <hfcomm/device/reduce_dict.hpp>
#include <hfcomm/device/reduce_scatter.hpp>
#include <hfcomm/device/registered_buffer.hpp>
#include <hfcomm/device/scatter.hpp>
// IWYU pragma: end_exports

#if !defined(HFCOMM_COMPILED)
#include <hfcomm/detail/nccl-inl.hpp>
#endif
