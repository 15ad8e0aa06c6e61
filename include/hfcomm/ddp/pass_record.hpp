// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace hfcomm {

/// A record of one averaged backward pass of distributed_data_parallel on this rank.
struct ddp_pass_record {
  std::uint64_t pass = 0;   ///< Its number, from 1; passes inside `no_sync` count, too.
  std::size_t buckets = 0;  ///< Reductions.
  std::size_t bytes = 0;    ///< Of all gradients that were reduced.
  std::size_t copied_bytes =
      0;  ///< Of them, those that were copied into a bucket, or to the host. The others were reduced in place.
  std::chrono::nanoseconds exposed{};   ///< Time in `finish`, which computation did not hide.
  std::chrono::nanoseconds reducing{};  ///< Time of the reductions on the CPU, from their start.
};

}  // namespace hfcomm
