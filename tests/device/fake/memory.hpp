// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

namespace fake_cuda {

enum class memory_kind { device, nccl_device, host };

struct allocation {
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  memory_kind kind = memory_kind::device;
  int device = 0;
};

/// The ranges of ordinary memory that stand for device memory or pinned host memory.
class memory_map {
 public:
  static constexpr std::size_t alignment = 4096;
  static constexpr int fresh = 0xCD;
  static constexpr int freed = 0xDD;

  [[nodiscard]] void* allocate(std::size_t bytes, memory_kind kind, int device) {
    if (bytes == 0) {
      return nullptr;
    }
    owner memory(static_cast<std::byte*>(::operator new(bytes, std::align_val_t{alignment})));
    std::memset(memory.get(), fresh, bytes);
    const std::scoped_lock lock(mutex_);
    auto* base = memory.get();
    live_[key(base)] = {{base, bytes, kind, device}, std::move(memory)};
    return base;
  }

  /// Frees memory. Returns false where none begins at `pointer`.
  [[nodiscard]] bool free(void* pointer, bool (*fits)(memory_kind)) {
    const std::scoped_lock lock(mutex_);
    const auto found = live_.find(key(pointer));
    if (found == live_.end() || !fits(found->second.what.kind)) {
      return false;
    }
    // Work that still uses the memory finds this pattern, and not somebody else's memory.
    std::memset(pointer, freed, found->second.what.bytes);
    kept_bytes_ += found->second.what.bytes;
    kept_.push_back(std::move(found->second));
    live_.erase(found);
    while (kept_bytes_ > most_kept_bytes) {
      kept_bytes_ -= kept_.front().what.bytes;
      kept_.pop_front();
    }
    return true;
  }

  /// Returns the allocation that a byte is in.
  [[nodiscard]] std::optional<allocation> find(const void* pointer) const {
    const std::scoped_lock lock(mutex_);
    auto after = live_.upper_bound(key(pointer));
    if (after == live_.begin()) {
      return std::nullopt;
    }
    const allocation& what = std::prev(after)->second.what;
    return key(pointer) - key(what.base) < what.bytes ? std::optional(what) : std::nullopt;
  }

  /// Returns whether a kernel of that device may use all of these bytes.
  [[nodiscard]] bool usable(const void* pointer, std::size_t bytes, int device) const {
    const auto what = find(pointer);
    return what && key(pointer) - key(what->base) + bytes <= what->bytes &&
           (what->kind == memory_kind::host || what->device == device);
  }

  [[nodiscard]] std::size_t count() const {
    const std::scoped_lock lock(mutex_);
    return live_.size();
  }

 private:
  struct release {
    void operator()(std::byte* memory) const { ::operator delete(memory, std::align_val_t{alignment}); }
  };
  using owner = std::unique_ptr<std::byte, release>;
  struct owned {
    allocation what{};
    owner memory{};
  };
  static constexpr std::size_t most_kept_bytes = std::size_t{64} << 20;

  static std::uintptr_t key(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

  mutable std::mutex mutex_;
  std::map<std::uintptr_t, owned> live_;
  std::deque<owned> kept_;
  std::size_t kept_bytes_ = 0;
};

}  // namespace fake_cuda
