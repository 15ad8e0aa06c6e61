// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>

#include <hfcomm/core/config.hpp>

namespace hfcomm {

/// Options of all NCCL communicators of the program. To be set before the first one is made.
struct nccl_options {
  /// The time that aborting or destroying a communicator, freeing its memory, or ending the copies of host_reduce may
  /// take. After that it continues in the background.
  std::chrono::nanoseconds teardown_timeout = std::chrono::seconds(5);
};

/// Returns the options in use. Not thread-safe: change them before the first device operation.
HFCOMM_PROCESS_STATE inline nccl_options& default_nccl_options() noexcept {
  static nccl_options options;
  return options;
}

}  // namespace hfcomm
