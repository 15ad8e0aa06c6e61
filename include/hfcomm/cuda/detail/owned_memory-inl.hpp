// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <limits>
#include <new>

#include <hfcomm/core/config.hpp>
#include <hfcomm/cuda/owned_memory.hpp>
#include <hfcomm/cuda/runtime_api.hpp>
#include <hfcomm/cuda/teardown.hpp>
#include <hfcomm/machine/bounded_call.hpp>

namespace hfcomm::cuda {

HFCOMM_INLINE owned_memory::owned_memory(place kind, std::size_t count, std::size_t width,
                                         const std::source_location& where)
    : count_(count) {
  if (count > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / width) {
    throw std::bad_array_new_length();
  }
  if (count == 0) {
    return;
  }
  const runtime_api& api = runtime(where);
  engines::process_end::watch();
  int device = 0;
  api.check(api.cudaGetDevice(&device), "cudaGetDevice", where);
  const bool is_on_device = kind == place::device;
  const std::size_t bytes = count * width;
  void* memory = nullptr;
  if (is_on_device) {
    api.check(api.cudaMalloc(&memory, bytes), "cudaMalloc", where);
  } else {
    api.check(api.cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "cudaHostAlloc", where);
    std::fill_n(static_cast<std::byte*>(memory), bytes, std::byte{});
  }
  data_ = std::shared_ptr<void>(memory, [&api, device, is_on_device](void* data) {
    if (!engines::process_end::begun()) {
      engines::tear_down(api, device, "giving back memory", [&api, is_on_device, data] {
        (void)(is_on_device ? api.cudaFree(data) : api.cudaFreeHost(data));
      });
    }
  });
}

}  // namespace hfcomm::cuda
