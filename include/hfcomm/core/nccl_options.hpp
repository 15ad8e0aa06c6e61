// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>

namespace hfcomm {

/// What a program may set for all its NCCL communicators, before the first one is made.
struct nccl_options {
  /// How long aborting or destroying a communicator, or giving its memory back, may take before it is left to itself.
  std::chrono::nanoseconds teardown_timeout = std::chrono::seconds(5);
};

inline nccl_options& default_nccl_options() noexcept {
  static nccl_options options;
  return options;
}

}  // namespace hfcomm
