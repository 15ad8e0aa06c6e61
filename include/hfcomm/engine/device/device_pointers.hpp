// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include <hfcomm/cuda/runtime_api.hpp>
#include <hfcomm/engine/device_engine.hpp>

namespace hfcomm::engines {

/// Tells which device memory is on, and remembers it: asking CUDA takes longer than all else that an operation costs
/// here. What was freed and given out again on another device in the meantime is taken for what it was. One thread at a
/// time.
class device_pointers {
 public:
  /// The device, where it is known; otherwise -1.
  [[nodiscard]] int known(device_memory memory) const noexcept {
    const entry& found = known_[place_of(memory)];
    return found.address == memory.data && found.bytes >= memory.bytes ? found.device : -1;
  }

  /// Asks CUDA. -1 where it is not device memory at all, and `problem` says what it is.
  int find(const cuda::runtime_api& api, device_memory memory, std::string& problem) {
    const int device = ask(api, memory.data, problem);
    if (device < 0) {
      return -1;
    }
    const auto* const last = static_cast<const std::byte*>(memory.data) + (memory.bytes == 0 ? 0 : memory.bytes - 1);
    if (ask(api, last, problem) != device) {
      problem = "the buffer of " + std::to_string(memory.bytes) + " bytes begins in memory of device " +
                std::to_string(device) + " and ends elsewhere";
      return -1;
    }
    known_[place_of(memory)] = {memory.data, memory.bytes, device};
    return device;
  }

 private:
  struct entry {
    const void* address = nullptr;
    std::size_t bytes = 0;
    int device = -1;
  };

  [[nodiscard]] static std::size_t place_of(device_memory memory) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data);
    return (address >> 8 ^ address >> 20) % places;
  }

  static int ask(const cuda::runtime_api& api, const void* data, std::string& problem) {
    // A later CUDA than the one that this was compiled with may write more than it knows.
    union {
      cudaPointerAttributes attributes;
      std::array<std::byte, 512> room;
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

  static constexpr std::size_t places = 64;
  std::array<entry, places> known_{};
};

}  // namespace hfcomm::engines
