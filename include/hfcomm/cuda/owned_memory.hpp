// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <source_location>

namespace hfcomm::cuda {

struct runtime_api;

/// Memory for a number of elements, from one of CUDA's functions, given back by its counterpart. That waits for what is
/// on the device by then, an operation that waits for a dead rank among it, so it is bounded
/// (default_nccl_options().teardown_timeout), and goes on without anybody where it takes longer; and it is not done
/// once the process has left main, when CUDA may be gone. Move-only; what was moved from has none.
class owned_memory {
 public:
  owned_memory() noexcept = default;
  /// Memory of the current device. CUDA is not asked for none. Throws engine_error with CUDA's reason, or where there
  /// is no CUDA, and std::bad_array_new_length for what no memory has room for.
  [[nodiscard]] static owned_memory on_device(std::size_t count, std::size_t width, const std::source_location& where);
  /// Page-locked host memory, zeros. Otherwise the same.
  [[nodiscard]] static owned_memory pinned(std::size_t count, std::size_t width, const std::source_location& where);

  owned_memory(owned_memory&& other) noexcept;
  owned_memory& operator=(owned_memory&& other) noexcept;
  ~owned_memory();

  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }

 private:
  enum class place { device, pinned_host };
  owned_memory(std::size_t count, std::size_t width, place where_to, const std::source_location& where);

  const runtime_api* api_ = nullptr;
  void* data_ = nullptr;
  std::size_t count_ = 0;
  int device_ = 0;
  place place_ = place::device;
};

}  // namespace hfcomm::cuda
