// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/reduction/copy_bytes.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>

namespace hfcomm::engines {

/// The chunks of a buffer that passes through half of a slot chunk by chunk, each divided into equal slices. All chunks
/// but the last are equally long, and a slice has the same place in all of them.
class sliced_chunks {
 public:
  /// `width` is the size of an element, `most` the bytes that a chunk may have.
  sliced_chunks(std::size_t bytes, std::size_t width, int slices, std::size_t most)
      : width_(width), total_(bytes / width), slices_(slices) {
    const auto parts = static_cast<std::size_t>(slices);
    const std::size_t most_elements = most / width / parts;  // of a slice
    const std::size_t unit = std::clamp<std::size_t>(most_elements, 1, largest_unit);
    const std::size_t largest = std::max(most_elements / unit * unit, unit);
    const std::size_t chunks = (total_ + largest * parts - 1) / (largest * parts);
    slice_ = std::min(layout::round_up((total_ + chunks * parts - 1) / (chunks * parts), unit), largest);
    chunk_ = slice_ * parts;
  }

  [[nodiscard]] std::size_t width() const noexcept { return width_; }
  [[nodiscard]] std::size_t count() const noexcept { return (total_ + chunk_ - 1) / chunk_; }

  /// Returns the chunk that has its place in `turn` where chunk 0 has it in turn `begin`.
  [[nodiscard]] std::optional<std::size_t> at(std::size_t turn, std::size_t begin) const {
    return turn >= begin && turn - begin < count() ? std::optional(turn - begin) : std::nullopt;
  }
  /// Returns the first element of a slice of a chunk, and the one behind its last.
  [[nodiscard]] std::pair<std::size_t, std::size_t> elements(std::size_t chunk, int slice) const {
    const std::size_t begin = std::min(chunk * chunk_ + static_cast<std::size_t>(slice) * slice_, total_);
    return {begin, std::min(begin + slice_, total_)};
  }
  /// Copies the slices of a chunk for which `is_staged(slice)` to their places behind `slot`.
  template <class IsStaged>
  void stage(std::span<const std::byte> in, std::size_t chunk, std::byte* slot, IsStaged&& is_staged) const {
    for (int slice = 0; slice < slices_; ++slice) {
      const auto [begin, end] = elements(chunk, slice);
      if (begin != end && is_staged(slice)) {
        detail::copy_bytes(slot + place(slice), in.data() + begin * width_, (end - begin) * width_);
      }
    }
  }
  /// Returns the offset of a slice from the beginning of its chunk, in bytes.
  [[nodiscard]] std::size_t place(int slice) const { return static_cast<std::size_t>(slice) * slice_ * width_; }

 private:
  static constexpr std::size_t largest_unit = 16;  // elements in whose multiples slices are cut

  std::size_t width_;
  std::size_t total_;  // elements
  int slices_;         // of a chunk
  std::size_t slice_;
  std::size_t chunk_;
};

}  // namespace hfcomm::engines
