// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <limits>
#include <new>
#include <source_location>
#include <utility>

#include <hfcomm/cuda/runtime_api.hpp>
#include <hfcomm/cuda/teardown.hpp>
#include <hfcomm/machine/bounded_call.hpp>

namespace hfcomm::cuda {

/// Memory for a number of elements, from one of CUDA's functions, given back by its counterpart. That waits for what is
/// on the device by then, an operation that waits for a dead rank among it, so it is bounded
/// (default_nccl_options().teardown_timeout), and goes on without anybody where it takes longer; and it is not done
/// once the process has left main, when CUDA may be gone. Move-only; what was moved from has none.
class owned_memory {
 public:
  using release = cudaError_t (*runtime_api::*)(void*);

  owned_memory() noexcept = default;
  /// `allocate(api, bytes)` gives the memory; it is not asked for none. Throws what it throws, engine_error where there
  /// is no CUDA, and std::bad_array_new_length for what no memory has room for.
  template <class Allocate>
  owned_memory(std::size_t count, std::size_t width, release free, std::source_location where, Allocate&& allocate)
      : count_(count), free_(free) {
    if (count > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / width) {
      throw std::bad_array_new_length();
    }
    if (count != 0) {
      api_ = &runtime(where);
      engines::process_end::watch();
      api_->check(api_->cudaGetDevice(&device_), "cudaGetDevice", where);
      data_ = std::forward<Allocate>(allocate)(*api_, count * width);
    }
  }
  owned_memory(owned_memory&& other) noexcept
      : api_(other.api_),
        data_(std::exchange(other.data_, nullptr)),
        count_(std::exchange(other.count_, 0)),
        device_(other.device_),
        free_(other.free_) {}
  owned_memory& operator=(owned_memory&& other) noexcept {
    owned_memory taken(std::move(other));
    std::swap(api_, taken.api_);
    std::swap(data_, taken.data_);
    std::swap(count_, taken.count_);
    std::swap(device_, taken.device_);
    std::swap(free_, taken.free_);
    return *this;
  }
  ~owned_memory() {
    if (data_ == nullptr || engines::process_end::begun()) {
      return;
    }
    engines::tear_down(*api_, device_, "giving back memory",
                       [&api = *api_, free = free_, data = data_] { (void)(api.*free)(data); });
  }

  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }

 private:
  const runtime_api* api_ = nullptr;
  void* data_ = nullptr;
  std::size_t count_ = 0;
  int device_ = 0;
  release free_ = nullptr;
};

}  // namespace hfcomm::cuda
