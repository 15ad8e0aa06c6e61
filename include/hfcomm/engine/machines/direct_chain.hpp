// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/engine/machines/direct_transfers.hpp>
#include <hfcomm/engine/operation.hpp>

namespace hfcomm::engines {

/// The algorithm of long broadcasts: a pipelined chain. Each rank sends a chunk on to the next while it receives the
/// one behind it.
class direct_chain {
 public:
  explicit direct_chain(direct_transfers& transfers) : transfers_(transfers) {}

  /// Makes room for `bytes`. Throws std::bad_alloc; then nothing has been sent.
  void prepare(std::size_t bytes) {
    chunks_.assign((bytes + chunk_bytes - 1) / chunk_bytes, nullptr);
    transfers_.reserve(4 * window + 8);
  }

  /// Does an operation for which all ranks have come, after `prepare`. `bytes` go out at the root, and come in
  /// elsewhere.
  void run(const operation& call, std::span<std::byte> bytes) {
    const int size = transfers_.size();
    const int place = (transfers_.rank() - call.root + size) % size;
    const int next = place + 1 < size ? (transfers_.rank() + 1) % size : -1;
    const int before = place > 0 ? (transfers_.rank() - 1 + size) % size : -1;
    received_ = 0;
    sent_ = 0;
    posted_ = 0;
    transfers_.run(call, [&] {
      for (; before >= 0 && received_ < posted_ && is_done(chunks_[received_]); ++received_) {
        chunks_[received_] = nullptr;
      }
      post_receives(before, bytes);
      const std::size_t there = before >= 0 ? received_ : chunks_.size();
      send_on(next, there, bytes);
      return there == chunks_.size() && (next < 0 || sent_ == chunks_.size());
    });
  }

 private:
  static constexpr std::size_t chunk_bytes = std::size_t{256} << 10;
  static constexpr std::size_t window = 8;  // chunks under way in each direction

  [[nodiscard]] static bool is_done(const link_transfer* one) noexcept {
    return one == nullptr || one->done.load(std::memory_order_acquire);
  }
  [[nodiscard]] static std::span<std::byte> chunk(std::span<std::byte> bytes, std::size_t index) noexcept {
    const std::size_t begin = index * chunk_bytes;
    return bytes.subspan(begin, std::min(chunk_bytes, bytes.size() - begin));
  }

  void post_receives(int before, std::span<std::byte> bytes) noexcept {
    for (; before >= 0 && posted_ < chunks_.size() && posted_ < received_ + window; ++posted_) {
      chunks_[posted_] = transfers_.receive(before, chunk(bytes, posted_));
    }
  }

  /// Sends chunks that are there, as long as not too many are under way. A rank that receives keeps the places of
  /// `chunks_` for what comes; those before `received_` are free for what it sends.
  void send_on(int next, std::size_t there, std::span<std::byte> bytes) noexcept {
    for (; next >= 0 && sent_ < there && (sent_ < window || is_done(chunks_[sent_ - window])); ++sent_) {
      if (sent_ >= window) {
        chunks_[sent_ - window] = nullptr;
      }
      chunks_[sent_] = transfers_.send(next, chunk(bytes, sent_));
    }
  }

  direct_transfers& transfers_;
  hfcomm::detail::plain_list<link_transfer*> chunks_;  // what is under way of each chunk; null: nothing
  std::size_t posted_ = 0;
  std::size_t received_ = 0;
  std::size_t sent_ = 0;
};

}  // namespace hfcomm::engines
