// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include <hfcomm/core/config.hpp>
#include <hfcomm/cuda/owned_memory.hpp>
#include <hfcomm/cuda/runtime_api.hpp>
#include <hfcomm/cuda/teardown.hpp>
#include <hfcomm/machine/bounded_call.hpp>

namespace hfcomm::cuda {

HFCOMM_INLINE owned_memory owned_memory::on_device(std::size_t count, std::size_t width,
                                                   const std::source_location& where) {
  return owned_memory(count, width, place::device, where);
}

HFCOMM_INLINE owned_memory owned_memory::pinned(std::size_t count, std::size_t width,
                                                const std::source_location& where) {
  return owned_memory(count, width, place::pinned_host, where);
}

HFCOMM_INLINE owned_memory::owned_memory(std::size_t count, std::size_t width, place kind,
                                         const std::source_location& where)
    : count_(count), place_(kind) {
  if (count > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / width) {
    throw std::bad_array_new_length();
  }
  if (count == 0) {
    return;
  }
  api_ = &runtime(where);
  engines::process_end::watch();
  api_->check(api_->cudaGetDevice(&device_), "cudaGetDevice", where);
  const std::size_t bytes = count * width;
  void* memory = nullptr;
  if (place_ == place::device) {
    api_->check(api_->cudaMalloc(&memory, bytes), "cudaMalloc", where);
  } else {
    api_->check(api_->cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "cudaHostAlloc", where);
    std::fill_n(static_cast<std::byte*>(memory), bytes, std::byte{});
  }
  data_ = memory;
}

HFCOMM_INLINE owned_memory::owned_memory(owned_memory&& other) noexcept
    : api_(other.api_),
      data_(std::exchange(other.data_, nullptr)),
      count_(std::exchange(other.count_, 0)),
      device_(other.device_),
      place_(other.place_) {}

HFCOMM_INLINE owned_memory& owned_memory::operator=(owned_memory&& other) noexcept {
  owned_memory taken(std::move(other));
  std::swap(api_, taken.api_);
  std::swap(data_, taken.data_);
  std::swap(count_, taken.count_);
  std::swap(device_, taken.device_);
  std::swap(place_, taken.place_);
  return *this;
}

HFCOMM_INLINE owned_memory::~owned_memory() {
  if (data_ == nullptr || engines::process_end::begun()) {
    return;
  }
  const auto free = place_ == place::device ? &runtime_api::cudaFree : &runtime_api::cudaFreeHost;
  engines::tear_down(*api_, device_, "giving back memory",
                     [&api = *api_, free, data = data_] { (void)(api.*free)(data); });
}

}  // namespace hfcomm::cuda
