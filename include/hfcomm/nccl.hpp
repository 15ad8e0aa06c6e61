// SPDX-License-Identifier: MIT
#pragma once

/// Operations on device memory, over NCCL. Needs the headers of CUDA and NCCL at compile time, and no library to link
/// with: the libraries are loaded at run time. <hfcomm/comm.hpp> includes this header where HFCOMM_NCCL is defined,
/// which the Meson option `nccl` does.
///
/// In a header-only program, this header brings the engine, and one file that includes it is enough. In a compiled
/// program, the file that includes <hfcomm/impl.hpp> needs HFCOMM_NCCL as well.

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
