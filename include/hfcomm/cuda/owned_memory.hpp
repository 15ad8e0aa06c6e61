// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <memory>
#include <source_location>

namespace hfcomm::cuda {

/// Memory for a number of elements, allocated by CUDA and owned. Move-only; a moved-from object has no memory.
///
/// Freeing waits for the work on the device, which may itself wait for a dead rank. So the destructor waits for at most
/// default_nccl_options().teardown_timeout, and leaves the rest to a thread of its own. Nothing is freed once the
/// process has left main, when CUDA may be gone.
class owned_memory {
 public:
  /// Memory of the current device, or page-locked host memory, which is filled with zeros.
  enum class place { device, pinned_host };

  owned_memory() noexcept = default;
  /// Allocates memory; none for a count of 0. Throws engine_error where CUDA fails or is not found, and
  /// std::bad_array_new_length where the size in bytes overflows.
  owned_memory(place kind, std::size_t count, std::size_t width, const std::source_location& where);
  owned_memory(owned_memory&&) noexcept = default;
  owned_memory& operator=(owned_memory&&) noexcept = default;
  ~owned_memory() = default;

  [[nodiscard]] void* data() const noexcept { return data_.get(); }
  [[nodiscard]] std::size_t count() const noexcept { return data_ != nullptr ? count_ : 0; }

 private:
  std::shared_ptr<void> data_;  // never shared; its deleter frees it
  std::size_t count_ = 0;
};

}  // namespace hfcomm::cuda
