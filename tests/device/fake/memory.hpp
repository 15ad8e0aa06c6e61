// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
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

enum class memory_kind { device, nccl_device, host, registered_host };

[[nodiscard]] inline bool is_on_host(memory_kind kind) {
  return kind == memory_kind::host || kind == memory_kind::registered_host;
}

struct allocation {
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  memory_kind kind = memory_kind::device;
  int device = 0;
};

/// The ranges of ordinary memory that stand for device memory or pinned host memory, and those of the program's own
/// memory that it has registered.
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

  /// Registers a range of the program's own memory. Returns false where a part of it is known already.
  [[nodiscard]] bool add(void* pointer, std::size_t bytes, int device) {
    const std::scoped_lock lock(mutex_);
    const auto after = live_.lower_bound(key(pointer));
    const bool meets_next = after != live_.end() && after->first - key(pointer) < bytes;
    const bool meets_last =
        after != live_.begin() && key(pointer) - std::prev(after)->first < bytes_of(std::prev(after));
    if (meets_next || meets_last) {
      return false;
    }
    live_[key(pointer)] = {{static_cast<std::byte*>(pointer), bytes, memory_kind::registered_host, device}, {}};
    return true;
  }
  /// Ends a registration. Returns false where none begins at `pointer`.
  [[nodiscard]] bool remove(void* pointer) {
    const std::scoped_lock lock(mutex_);
    const auto found = live_.find(key(pointer));
    if (found == live_.end() || found->second.what.kind != memory_kind::registered_host) {
      return false;
    }
    live_.erase(found);
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
           (is_on_host(what->kind) || what->device == device);
  }

  /// Returns the number of allocations.
  [[nodiscard]] std::size_t count() const { return count_all(false); }
  /// Returns the number of registered ranges.
  [[nodiscard]] std::size_t count_registered() const { return count_all(true); }

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

  [[nodiscard]] std::size_t count_all(bool registered) const {
    const std::scoped_lock lock(mutex_);
    return static_cast<std::size_t>(std::count_if(live_.begin(), live_.end(), [&](const auto& one) {
      return (one.second.what.kind == memory_kind::registered_host) == registered;
    }));
  }
  static std::size_t bytes_of(std::map<std::uintptr_t, owned>::const_iterator one) { return one->second.what.bytes; }

  static std::uintptr_t key(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

  mutable std::mutex mutex_;
  std::map<std::uintptr_t, owned> live_;
  std::deque<owned> kept_;
  std::size_t kept_bytes_ = 0;
};

}  // namespace fake_cuda
