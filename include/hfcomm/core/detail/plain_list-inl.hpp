// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstring>
#include <new>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/core/std_algorithm.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE plain_memory::~plain_memory() { operator delete(data_); }

HFCOMM_INLINE void plain_memory::reserve_elements(std::size_t count, std::size_t width) {
  if (count <= capacity_) {
    return;
  }
  void* const larger = operator new(count * width);
  if (size_ != 0) {
    std::memcpy(larger, data_, size_ * width);
  }
  operator delete(data_);
  data_ = larger;
  capacity_ = count;
}

HFCOMM_INLINE void plain_memory::insert_room(std::size_t index, std::size_t width) {
  if (size_ == capacity_) {
    reserve_elements(std::max<std::size_t>(2 * size_, 4), width);
  }
  auto* const at = static_cast<std::byte*>(data_) + index * width;
  std::memmove(at + width, at, (size_ - index) * width);
  ++size_;
}

HFCOMM_INLINE void plain_memory::remove_element(std::size_t index, std::size_t width) noexcept {
  auto* const at = static_cast<std::byte*>(data_) + index * width;
  --size_;
  std::memmove(at, at + width, (size_ - index) * width);
}

}  // namespace hfcomm::detail
