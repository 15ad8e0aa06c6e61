// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/cuda/runtime_api.hpp>
#include <hfcomm/engine/device_engine.hpp>

namespace hfcomm::engines {

/// Caches the device that a piece of memory is on, because asking CUDA takes longer than the rest of hfcomm's part of
/// an operation. An address that was freed and is in use again on another device is still found on the former device.
/// One thread at a time.
class pointer_cache {
 public:
  /// Returns the device, or -1 where the memory is not in the cache.
  [[nodiscard]] int find(device_memory memory) const noexcept {
    const entry& found = entries_[index_of(memory)];
    return found.address == memory.data && found.bytes >= memory.bytes ? found.device : -1;
  }

  /// Asks CUDA for the device, and adds it to the cache. Returns -1 where the buffer is no device memory; `problem`
  /// then describes it.
  int query(const cuda::runtime_api& api, device_memory memory, std::string& problem) {
    const int device = device_of(api, memory.data, problem);
    if (device < 0) {
      return -1;
    }
    const auto* const last = static_cast<const std::byte*>(memory.data) + (memory.bytes == 0 ? 0 : memory.bytes - 1);
    if (device_of(api, last, problem) != device) {
      problem = detail::concat(
          {"the buffer of ", memory.bytes, " bytes begins in memory of device ", device, " and ends elsewhere"});
      return -1;
    }
    entries_[index_of(memory)] = {memory.data, memory.bytes, device};
    return device;
  }

 private:
  struct entry {
    const void* address = nullptr;
    std::size_t bytes = 0;
    int device = -1;
  };

  [[nodiscard]] static std::size_t index_of(device_memory memory) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data);
    return (address >> 8 ^ address >> 20) % size;
  }

  static int device_of(const cuda::runtime_api& api, const void* data, std::string& problem) {
    // A later CUDA than the one that this was compiled with may write a longer structure.
    union {
      cudaPointerAttributes attributes;
      std::array<std::byte, 512> space;
    } answer{};
    if (api.cudaPointerGetAttributes(&answer.attributes, data) != cudaSuccess) {
      (void)api.cudaGetLastError();
      problem = "the buffer is in host memory that CUDA does not know; a device operation needs memory of a device";
      return -1;
    }
    switch (answer.attributes.type) {
      case cudaMemoryTypeDevice:
      case cudaMemoryTypeManaged: return answer.attributes.device;
      case cudaMemoryTypeHost:
        problem = "the buffer is in pinned host memory; a device operation needs memory of a device";
        return -1;
      default: problem = "the buffer is in host memory; a device operation needs memory of a device"; return -1;
    }
  }

  static constexpr std::size_t size = 64;
  std::array<entry, size> entries_{};
};

}  // namespace hfcomm::engines
