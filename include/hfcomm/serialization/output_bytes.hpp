// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

namespace hfcomm::serialization {

/// The target of an archive: first `room`, then a vector. When `room` is full, the bytes written so far are moved to
/// the vector.
class output_bytes {
 public:
  /// The vector's first `kept` bytes stay. Its size may become more than was written: see `written`.
  template <class Allocator>
  explicit output_bytes(std::vector<std::byte, Allocator>& spill, std::size_t kept = 0, std::span<std::byte> room = {})
      : spill_(&spill),
        enlarge_([](void* vector, std::size_t size) -> std::span<std::byte> {
          auto& bytes = *static_cast<std::vector<std::byte, Allocator>*>(vector);
          if (size > bytes.size()) {
            bytes.resize(size);
          }
          return bytes;
        }),
        kept_(kept),
        begin_(room.data()),
        next_(room.data()),
        end_(room.data() + room.size()) {}
  output_bytes(const output_bytes&) = delete;
  output_bytes& operator=(const output_bytes&) = delete;

  void write(const void* data, std::size_t size) {
    if (size > static_cast<std::size_t>(end_ - next_)) {
      grow(size);
    }
    if (size != 0) {
      std::memcpy(next_, data, size);
      next_ += size;
    }
  }
  [[nodiscard]] std::span<const std::byte> written() const noexcept { return {begin_, next_}; }

 private:
  /// Makes room for `more` bytes.
  void grow(std::size_t more);

  void* spill_;
  std::span<std::byte> (*enlarge_)(void* vector, std::size_t size);  // to `size` at least; all of it
  std::size_t kept_;
  std::byte* begin_;
  std::byte* next_;
  std::byte* end_;
};

}  // namespace hfcomm::serialization
