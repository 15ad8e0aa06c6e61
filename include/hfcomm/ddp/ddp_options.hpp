// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/ddp/communication_hook.hpp>

namespace hfcomm {

/// Options of `distributed_data_parallel`. All but `stream` must be equal on all ranks; of `hook`, what it does.
struct ddp_options {
  std::size_t first_bucket_bytes = std::size_t{1} << 20;  ///< Limit of the first bucket: small, to start early.
  std::size_t bucket_bytes = std::size_t{25} << 20;       ///< Limit of every other bucket.
  /// Parameters and buffers are packed into broadcasts of up to this size; a larger one is sent alone. (haiscale:
  /// 250 MiB.)
  std::size_t broadcast_chunk_bytes = std::size_t{25} << 20;
  bool find_unused_parameters = false;  ///< Parameters that never become ready count as zero instead of being an error.
  /// Whether buckets are filled anew once, in the order in which rank 0's gradients became ready in the first averaged
  /// pass. Not with `find_unused_parameters`. On a device with `host_reduce` only: else hosts do not wait for each
  /// other.
  bool rebuild_buckets = true;
  /// The model is used in the same way in every pass. A gradient may then become ready several times in a pass, and
  /// some never: the first averaged pass counts how often on this rank, and the following ones wait for as many.
  /// (torch's `static_graph`.)
  bool static_graph = false;
  /// Whether gradients that the CPU reduces are reduced by the thread that calls `mark_ready` and `finish`, instead of
  /// one that runs beside it: for as many ranks as there are cores.
  bool reduce_on_calling_thread = false;
  /// Whether gradients on a device are averaged on the CPU, without NCCL and without a kernel on the device: for GPUs
  /// that have no fast links between them, and for several processes on one GPU. They travel in chunks through memory
  /// that the ranks share, while backward continues. The averages have the bits of host memory. `finish` waits for the
  /// CPU's sums. Not with a `hook` (usage_error), and not captured in a graph. Changes nothing for parameters in host
  /// memory, and in a group of one. (haiscale's hfreduce.)
  bool host_reduce = false;
  /// Whether gradients that the model holds in host memory, and that have a bucket of their own, are put into memory
  /// that the ranks share, for as long as the distributed_data_parallel lives: see `share`, and what it asks of the
  /// program. They are then reduced in place. The model must outlive the distributed_data_parallel. Gradients that
  /// cannot be shared are an engine_error, and a peer_error on the other ranks. Changes nothing with
  /// `find_unused_parameters`, on several machines, and where a limit of the process leaves no room. Parameter values
  /// stay private memory.
  bool share_memory = false;
  bool broadcast_buffers = true;      ///< Whether `begin_forward` gives every rank rank 0's buffers.
  std::vector<std::string> ignore{};  ///< Names of parameters and buffers that are neither shared nor averaged.
  /// Averages each bucket, where it is set; without it their exact average is taken. See communication_hook.
  communication_hook hook{};
  /// The stream on which gradients on a device are computed, and read after `finish`. Not used for host memory.
  stream_ref stream = stream_ref::legacy_default();
};

}  // namespace hfcomm
