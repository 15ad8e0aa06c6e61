// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>

#include <hfcomm/core/device_span.hpp>
#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/cuda/copy.hpp>
#include <hfcomm/cuda/device_buffer.hpp>
#include <hfcomm/cuda/device_event.hpp>
#include <hfcomm/cuda/pinned_buffer.hpp>

#include "char_lm/vocabulary.hpp"

namespace char_lm {

/// Examples in device memory: see batch.
struct device_batch {
  hfcomm::device_span<const symbol> text;
  hfcomm::device_span<const std::size_t> positions;
};

/// Keeps a text in device memory and brings the positions of one batch after the other beside it, on a stream. The host
/// may be `slot_count` batches ahead of the device; then it waits.
class batch_feed {
 public:
  static constexpr std::size_t slot_count = 8;

  /// Throws std::invalid_argument for a symbol outside the vocabulary. Waits for the stream.
  batch_feed(std::span<const symbol> text, std::size_t vocabulary_size, std::size_t context, hfcomm::stream_ref stream)
      : stream_(stream), context_(context), text_(text.size()) {
    if (const auto largest = std::max_element(text.begin(), text.end());
        largest != text.end() && *largest >= vocabulary_size) {
      throw std::invalid_argument("the text has symbol " + std::to_string(*largest) + ", but the vocabulary only " +
                                  std::to_string(vocabulary_size));
    }
    hfcomm::copy(text, text_, stream_);
    slots_.front().copied.record(stream_);
    slots_.front().copied.synchronize();  // from here on nobody needs `text`
  }
  batch_feed(const batch_feed&) = delete;
  batch_feed& operator=(const batch_feed&) = delete;

  /// The batch in device memory, for what is put on the stream before the next put(). The host's positions may end.
  /// Throws std::invalid_argument for a position outside the text or nearer to its start than the context.
  [[nodiscard]] device_batch put(std::span<const std::size_t> positions) {
    for (const std::size_t position : positions) {
      if (position < context_ || position >= text_.size()) {
        throw std::invalid_argument("position " + std::to_string(position) + " is outside [" +
                                    std::to_string(context_) + ", " + std::to_string(text_.size()) + ')');
      }
    }
    slot& mine = slots_[next_];
    next_ = (next_ + 1) % slot_count;
    mine.copied.synchronize();
    // Shares vary by a few examples from step to step: memory, which takes a wait to free, is for a few more.
    const std::size_t capacity = (positions.size() + 63) / 64 * 64;
    if (mine.positions.size() < positions.size())
      mine.positions = hfcomm::pinned_buffer<std::size_t>(capacity);
    if (positions_.size() < positions.size())
      positions_ = hfcomm::device_buffer<std::size_t>(capacity);
    std::copy(positions.begin(), positions.end(), mine.positions.begin());
    const auto target = positions_.span().first(positions.size());
    hfcomm::copy(std::span(mine.positions.data(), positions.size()), target, stream_);
    mine.copied.record(stream_);
    return {text_.span(), target};
  }

 private:
  struct slot {
    hfcomm::pinned_buffer<std::size_t> positions;
    hfcomm::device_event copied;  // out of `positions`
  };

  hfcomm::stream_ref stream_;
  std::size_t context_;
  std::size_t next_ = 0;
  std::array<slot, slot_count> slots_;
  // Behind the slots, so that freeing these waits for the copies out of those.
  hfcomm::device_buffer<symbol> text_;
  hfcomm::device_buffer<std::size_t> positions_;
};

}  // namespace char_lm
