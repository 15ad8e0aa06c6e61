// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/engine/machines/direct_transfers.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>

namespace hfcomm::engines {

/// A rank's exchange with another one in an operation. Both know the lengths, which are 0 where only one of them sends.
struct direct_move {
  int rank = -1;
  bool sends = false;
  bool receives = false;
  std::span<const std::byte> out{};  ///< May be empty where it `sends`: then the rank only tells that it has come.
  std::span<std::byte> in{};
  double factor = 1;  ///< operation::factor of the other rank, where this one `receives`.
};

/// The algorithm that exchanges bytes with each rank directly. Few bytes go in one message, behind its header. More are
/// sent from where they are, and many only once the other rank has come: before, they would be kept there. No byte is
/// written where it belongs before all headers have come and fit.
class direct_exchange {
 public:
  explicit direct_exchange(direct_transfers& transfers)
      : transfers_(transfers), most_unasked_(transfers.most_unasked()) {}

  /// Makes room for the moves. Throws std::bad_alloc; then nothing has been sent.
  void prepare(std::span<direct_move> moves) {
    states_.assign(moves.size(), state());
    std::size_t bytes = 0;
    for (std::size_t index = 0; index < moves.size(); ++index) {
      const direct_move& one = moves[index];
      state& its = states_[index];
      const bool shares = index != 0 && moves[index - 1].sends && one.sends && is_packed(one.out) &&
                          moves[index - 1].out.data() == one.out.data() &&
                          moves[index - 1].out.size() == one.out.size();
      its.sent = shares ? states_[index - 1].sent : bytes;
      bytes += !shares && one.sends ? sizeof(direct_header) + packed_bytes(one.out) : 0;
      its.received = bytes;
      bytes += one.receives ? sizeof(direct_header) + packed_bytes(one.in) : 0;
    }
    messages_.resize(std::max(messages_.size(), bytes));
    transfers_.reserve(8 * moves.size());
  }

  /// Does the moves of an operation that has begun, after `prepare`.
  void run(const operation& call, std::span<direct_move> moves) {
    for (std::size_t index = 0; index < moves.size(); ++index) {
      receive_head(moves[index], states_[index]);
    }
    for (std::size_t index = 0; index < moves.size(); ++index) {
      send(call, moves[index], states_[index]);
    }
    bool goes_on = false;
    transfers_.run(call, [&] {
      bool have_all_come = true;
      for (std::size_t index = 0; index < moves.size(); ++index) {
        have_all_come = take_head(moves[index], states_[index]) && have_all_come;
      }
      for (std::size_t index = 0; index < moves.size() && have_all_come && !goes_on; ++index) {
        go_on(moves[index], states_[index]);
      }
      goes_on = have_all_come;
      return goes_on;
    });
  }

 private:
  static constexpr std::size_t most_packed = std::size_t{16} << 10;

  struct state {
    std::size_t sent = 0;           // the place of the message that goes out
    std::size_t received = 0;       // the place of the one that comes
    link_transfer* head = nullptr;  // which has not been taken
  };

  [[nodiscard]] static bool is_packed(std::span<const std::byte> bytes) noexcept { return bytes.size() <= most_packed; }
  [[nodiscard]] bool is_long(std::span<const std::byte> bytes) const noexcept { return bytes.size() > most_unasked_; }
  [[nodiscard]] static std::size_t packed_bytes(std::span<const std::byte> bytes) noexcept {
    return is_packed(bytes) ? layout::round_up(bytes.size(), sizeof(direct_header)) : 0;
  }

  void receive_head(const direct_move& one, state& its) noexcept {
    if (one.receives) {
      const std::size_t packed = is_packed(one.in) ? one.in.size() : 0;
      its.head = transfers_.receive(one.rank, {&messages_[its.received], sizeof(direct_header) + packed});
    }
  }

  void send(const operation& call, const direct_move& one, const state& its) noexcept {
    if (one.sends) {
      const direct_header head = transfers_.header_for(call);
      const std::size_t packed = is_packed(one.out) ? one.out.size() : 0;
      std::byte* const message = &messages_[its.sent];
      std::memcpy(message, &head, sizeof(head));
      if (packed != 0) {
        std::memcpy(message + sizeof(head), one.out.data(), packed);
      }
      transfers_.send(one.rank, {message, sizeof(head) + packed});
    }
    if (one.sends && !is_packed(one.out) && !is_long(one.out)) {
      transfers_.send(one.rank, one.out);
    }
  }

  /// Takes the other rank's header. Returns whether that has been done.
  [[nodiscard]] bool take_head(direct_move& one, state& its) noexcept {
    if (its.head != nullptr && its.head->done.load(std::memory_order_acquire)) {
      direct_header head;
      std::memcpy(&head, &messages_[its.received], sizeof(head));
      if (transfers_.fits(head)) {
        its.head = nullptr;
        one.factor = head.factor;
      }
    }
    return its.head == nullptr;
  }

  /// Takes what came with the header, or begins what has waited for it.
  void go_on(const direct_move& one, const state& its) noexcept {
    if (one.receives && !is_packed(one.in)) {
      transfers_.receive(one.rank, one.in);
    } else if (one.receives && !one.in.empty()) {
      std::memcpy(one.in.data(), &messages_[its.received + sizeof(direct_header)], one.in.size());
    }
    if (is_long(one.out)) {
      transfers_.send(one.rank, one.out);
    }
  }

  direct_transfers& transfers_;
  std::size_t most_unasked_;
  hfcomm::detail::plain_list<state> states_;
  hfcomm::detail::plain_list<std::byte> messages_;
};

}  // namespace hfcomm::engines
