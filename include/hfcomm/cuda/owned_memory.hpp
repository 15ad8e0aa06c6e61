// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <source_location>

namespace hfcomm::cuda {

struct runtime_api;

/// Memory for a number of elements, allocated by CUDA and owned. Move-only; a moved-from object has no memory.
///
/// Freeing waits for the work on the device, which may itself wait for a dead rank. So the destructor waits for at most
/// default_nccl_options().teardown_timeout, and leaves the rest to a thread of its own. Nothing is freed once the
/// process has left main, when CUDA may be gone.
class owned_memory {
 public:
  owned_memory() noexcept = default;
  /// Allocates memory of the current device; none for a count of 0. Throws engine_error where CUDA fails or is not
  /// found, and std::bad_array_new_length where the size in bytes overflows.
  [[nodiscard]] static owned_memory on_device(std::size_t count, std::size_t width, const std::source_location& where);
  /// Allocates page-locked host memory, filled with zeros. Otherwise the same.
  [[nodiscard]] static owned_memory pinned(std::size_t count, std::size_t width, const std::source_location& where);

  owned_memory(owned_memory&& other) noexcept;
  owned_memory& operator=(owned_memory&& other) noexcept;
  ~owned_memory();

  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }

 private:
  enum class place { device, pinned_host };
  owned_memory(std::size_t count, std::size_t width, place kind, const std::source_location& where);

  const runtime_api* api_ = nullptr;
  void* data_ = nullptr;
  std::size_t count_ = 0;
  int device_ = 0;
  place place_ = place::device;
};

}  // namespace hfcomm::cuda
