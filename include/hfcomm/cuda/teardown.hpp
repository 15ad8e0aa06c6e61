// SPDX-License-Identifier: MIT
#pragma once

#include <cstdio>
#include <utility>

#include <hfcomm/core/error.hpp>
#include <hfcomm/core/nccl_options.hpp>
#include <hfcomm/cuda/runtime_api.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/machine/bounded_call.hpp>

namespace hfcomm::engines {

/// Runs a destructor's `work` on a device, on a thread of its own, because the work may wait for an operation that
/// never ends. Waits for at most default_nccl_options().teardown_timeout.
///
/// After that, the thread continues alone, so `work` must own what it uses. A message on stderr says so; `what` names
/// the work ("destroying an NCCL communicator").
template <class Work>
void tear_down(const cuda::runtime_api& api, int device, const char* what, Work work) noexcept {
  const auto limit = default_nccl_options().teardown_timeout;
  const bool has_ended = run_bounded(limit, [&api, device, work = std::move(work)]() mutable {
    const cuda::thread_on_device on_device(api, device);
    work();
  });
  if (!has_ended) {
    std::fprintf(stderr, "[hfcomm] %s of device %d has not ended within %s; it is left to itself\n", what, device,
                 format_duration(limit).c_str());
  }
}

}  // namespace hfcomm::engines
