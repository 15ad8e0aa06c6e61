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

/// For destructors: does `work` on that device, on a thread of its own, since it may wait for what never ends there,
/// and waits for it no longer than default_nccl_options().teardown_timeout. Then stderr says so, `what` being what was
/// done ("destroying an NCCL communicator"), and it goes on without anybody, so it must own what it uses.
template <class Work>
void tear_down(const cuda::runtime_api& api, int device, const char* what, Work work) noexcept {
  const auto limit = default_nccl_options().teardown_timeout;
  const bool ended = run_bounded(limit, [&api, device, work = std::move(work)]() mutable {
    const cuda::thread_on_device here(api, device);
    work();
  });
  if (!ended) {
    std::fprintf(stderr, "[hfcomm] %s of device %d has not ended within %s; it is left to itself\n", what, device,
                 format_duration(limit).c_str());
  }
}

}  // namespace hfcomm::engines
