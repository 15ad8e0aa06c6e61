// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/engine/links/link.hpp>
#include <hfcomm/machine/shared_segment.hpp>

namespace hfcomm::engines {

/// The transfers to and from one other machine, over a TCP connection that comes later. Each is a message: its channel
/// and its length, and then its bytes. They go from the sender's memory to the receiver's, but for what comes together
/// with a head. Bytes for which no receive has been started are kept.
class tcp_stream {
 public:
  [[nodiscard]] bool is_connected() const noexcept { return static_cast<bool>(socket_); }
  /// Returns whether the connection has ended, or could not be made.
  [[nodiscard]] bool has_failed() const noexcept { return has_failed_; }
  /// Returns whether `receive` has something to do, although nothing new has come.
  [[nodiscard]] bool is_due() const noexcept { return is_due_; }

  /// Takes the connection's socket, which never blocks.
  void connect(rendezvous::unique_fd socket) noexcept {
    socket_ = std::move(socket);
    const int unsent = most_unsent;
    ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
    send(true);
  }

  /// Starts a transfer. A send waits for `send`, so that several of them are sent together.
  void start(link_transfer& one) noexcept {
    if (!one.sends && take_kept(one)) {
      return;
    }
    if (has_failed_) {
      one.finish(false);
      return;
    }
    (one.sends ? sends_ : receives_).push_back(&one);
  }

  /// Gives up a receive at once.
  void cancel(link_transfer& receive) noexcept {
    const auto* const found = std::find(receives_.begin(), receives_.end(), &receive);
    if (found != receives_.end()) {
      receives_.erase(static_cast<std::size_t>(found - receives_.begin()));
    } else if (into_ == &receive) {
      into_ = nullptr;
      place_ = nullptr;
    } else {
      return;
    }
    receive.finish(false);
  }

  /// Sends as much as the connection takes. Returns whether that was anything. `has_room`: it has said that it takes
  /// more.
  bool send(bool has_room) noexcept {
    bool moved = false;
    is_full_ = is_full_ && !has_room;
    while (!sends_.empty() && !is_full_ && is_connected() && send_some()) {
      moved = true;
      while (!sends_.empty() && sent_ >= sizeof(head) + sends_[0]->bytes.size()) {
        sent_ -= sizeof(head) + sends_[0]->bytes.size();
        link_transfer* const done = sends_[0];
        sends_.erase(0);
        done->finish(true);
      }
    }
    return moved;
  }

  /// Takes what has come. Returns whether that was anything. `is_ending`: the other machine sends no more.
  bool receive(bool is_ending) noexcept {
    if (!is_connected()) {
      return false;
    }
    is_ending_ = is_ending_ || is_ending;
    bool moved = use_staged();
    std::size_t taken = 0;
    while (is_connected() && !is_stalled_ && taken < most_taken) {
      const std::size_t direct = place_ != nullptr ? left_ : 0;
      std::array<iovec, 2> places{{{place_, direct}, {memory_.data() + staged_, staged_bytes - staged_}}};
      const std::size_t unused = direct != 0 ? 0 : 1;
      const ssize_t got = ::readv(socket_.get(), &places[unused], static_cast<int>(places.size() - unused));
      if (got <= 0) {
        if (got < 0 && errno == EINTR) {
          continue;
        }
        if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) {
          fail();
        }
        break;
      }
      const auto bytes = static_cast<std::size_t>(got);
      const std::size_t room = direct + places[1].iov_len;
      taken += bytes;
      staged_ += bytes - std::min(bytes, direct);
      add_to_body(std::min(bytes, direct));
      use_staged();
      if (bytes < room && !is_ending_) {
        break;  // more will be news
      }
    }
    is_due_ = is_connected() && (is_stalled_ || taken >= most_taken);
    return moved || taken != 0;
  }

  /// Ends the connection and all transfers. What is kept can still be received.
  void fail() noexcept {
    has_failed_ = true;
    is_due_ = false;
    is_stalled_ = false;
    socket_.close();
    if (std::exchange(is_keeping_, false)) {
      kept_.pop_back();  // its rest does not come
    }
    if (into_ != nullptr) {
      std::exchange(into_, nullptr)->finish(false);
    }
    place_ = nullptr;
    for (auto* list : {&sends_, &receives_}) {
      while (!list->empty()) {
        link_transfer* const one = list->back();
        list->erase(list->size() - 1);
        one->finish(false);
      }
    }
  }

  /// Ends the connection and all transfers, and forgets what is kept.
  void give_up() noexcept {
    fail();
    kept_.clear();
  }

 private:
  static constexpr std::size_t staged_bytes = std::size_t{16} << 10;
  static constexpr std::size_t most_taken = std::size_t{1} << 20;  // bytes at a time, before others have their turn
  /// Bytes that wait in the kernel to be sent. More would be out of the caches before they are.
  static constexpr int most_unsent = 32 << 10;
  static constexpr std::size_t most_sends = 8;  // that one call of the system sends
  /// The times for which a message of more than `staged_bytes`, or of more than 1 MiB, stays in the kernel when no
  /// receive has been started. Often one is about to be, because the message before is what it waits for. Kept, it
  /// would be copied twice. The longer ones are sent only to those that are about to receive them.
  static constexpr std::chrono::milliseconds keep_delay{2};
  static constexpr std::chrono::milliseconds long_keep_delay{100};

  struct head {
    std::uint64_t channel = 0;
    std::uint64_t bytes = 0;
  };
  struct kept_message {
    std::uint64_t channel;
    std::size_t bytes;
    std::unique_ptr<std::byte[]> memory;  // NOLINT(*avoid-c-arrays): not to be zeroed
  };

  /// Returns false where nothing could be sent.
  [[nodiscard]] bool send_some() noexcept {
    std::array<head, most_sends> heads{};
    std::array<iovec, 2 * most_sends> pieces;
    std::size_t count = 0;
    std::size_t all = 0;
    std::size_t skipped = sent_;
    for (std::size_t index = 0; index < std::min(sends_.size(), most_sends); ++index) {
      const std::span<std::byte> bytes = sends_[index]->bytes;
      heads[index] = {sends_[index]->channel, bytes.size()};
      for (const iovec& piece : {iovec{&heads[index], sizeof(head)}, iovec{bytes.data(), bytes.size()}}) {
        const std::size_t before = std::min(skipped, piece.iov_len);
        skipped -= before;
        if (before != piece.iov_len) {
          pieces[count++] = {static_cast<std::byte*>(piece.iov_base) + before, piece.iov_len - before};
          all += piece.iov_len - before;
        }
      }
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    ssize_t sent = -1;
    do {
      sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
      receive(true);  // what the other machine has sent before its end
      fail();
      return false;
    }
    sent_ += static_cast<std::size_t>(std::max<ssize_t>(sent, 0));
    is_full_ = sent < static_cast<ssize_t>(all);
    return sent > 0;
  }

  /// Takes what is staged. Returns whether a message has ended.
  bool use_staged() noexcept {
    bool has_ended = false;
    std::size_t used = 0;
    is_stalled_ = false;
    while (true) {
      if (!has_head_) {
        if (staged_ - used < sizeof(head)) {
          break;
        }
        std::memcpy(&head_, &memory_[used], sizeof(head));
        used += sizeof(head);
        has_head_ = true;
        is_matched_ = false;
        left_ = static_cast<std::size_t>(head_.bytes);
      }
      is_stalled_ = !is_matched_ && !match(staged_ - used);
      if (is_stalled_) {
        break;
      }
      const std::size_t taken = std::min(left_, staged_ - used);
      if (place_ != nullptr && taken != 0) {
        std::memcpy(place_, &memory_[used], taken);
      }
      used += taken;
      add_to_body(taken);
      if (has_head_) {
        break;
      }
      has_ended = true;
    }
    std::memmove(memory_.data(), &memory_[used], staged_ - used);
    staged_ -= used;
    return has_ended;
  }

  /// Finds out where the message goes of which the head and the first `there` bytes are staged. Returns false where it
  /// is not to be known yet.
  bool match(std::size_t there) noexcept {
    const auto* const found = std::find_if(receives_.begin(), receives_.end(),
                                           [&](const link_transfer* one) { return one->channel == head_.channel; });
    if (found != receives_.end()) {
      link_transfer& one = **found;
      receives_.erase(static_cast<std::size_t>(found - receives_.begin()));
      begin_body(one, 0);
    } else {
      if (head_.bytes > staged_bytes && there < head_.bytes) {
        const auto now = clock::now();
        stalled_since_ = stalled_since_ == clock::time_point() ? now : stalled_since_;
        if (now - stalled_since_ < (head_.bytes > most_taken ? long_keep_delay : keep_delay)) {
          return false;
        }
      }
      const auto bytes = static_cast<std::size_t>(head_.bytes);
      kept_.push_back(
          {head_.channel, bytes, std::unique_ptr<std::byte[]>(new (std::nothrow) std::byte[bytes])});  // NOLINT
      place_ = kept_.back().memory.get();
      is_keeping_ = true;
      if (place_ == nullptr) {
        fail();
        return false;
      }
    }
    stalled_since_ = {};
    is_matched_ = true;
    return true;
  }
  /// Makes a receive the one to which the message's bytes go that come after so many.
  void begin_body(link_transfer& one, std::size_t done) noexcept {
    const bool fits = one.bytes.size() == head_.bytes;
    into_ = fits ? &one : nullptr;
    place_ = fits ? one.bytes.data() + done : nullptr;
    if (!fits) {
      one.finish(false);
    }
  }
  void add_to_body(std::size_t bytes) noexcept {
    place_ = place_ != nullptr ? place_ + bytes : nullptr;
    left_ -= bytes;
    if (has_head_ && is_matched_ && left_ == 0) {
      has_head_ = false;
      is_keeping_ = false;
      place_ = nullptr;
      if (into_ != nullptr) {
        std::exchange(into_, nullptr)->finish(true);
      }
    }
  }

  /// Gives a receive the first message of its channel that is kept. Returns false where there is none.
  bool take_kept(link_transfer& one) noexcept {
    const auto found =
        std::find_if(kept_.begin(), kept_.end(), [&](const auto& kept) { return kept.channel == one.channel; });
    if (found == kept_.end()) {
      return false;
    }
    const bool is_whole = !is_keeping_ || &*found != &kept_.back();
    const std::size_t there = found->bytes - (is_whole ? 0 : left_);
    const bool fits = one.bytes.size() == found->bytes;
    if (fits && there != 0) {
      std::memcpy(one.bytes.data(), found->memory.get(), there);
    }
    if (is_whole) {
      one.finish(fits);
    } else {
      is_keeping_ = false;
      begin_body(one, there);
    }
    kept_.erase(found);
    return true;
  }

  using clock = std::chrono::steady_clock;

  rendezvous::unique_fd socket_;
  bool has_failed_ = false;

  hfcomm::detail::plain_list<link_transfer*> sends_;
  std::size_t sent_ = 0;  // of the first one, with its head
  bool is_full_ = false;  // the connection takes no more now

  hfcomm::detail::plain_list<link_transfer*> receives_;  // for which nothing has come
  std::list<kept_message> kept_;
  std::array<std::byte, staged_bytes> memory_;  // where what comes is staged
  std::size_t staged_ = 0;                      // bytes of it
  bool is_ending_ = false;
  bool is_stalled_ = false;
  bool is_due_ = false;
  clock::time_point stalled_since_;

  // The message that is coming:
  bool has_head_ = false;          // there is one
  head head_;                      // its own
  bool is_matched_ = false;        // it is known where it goes
  std::size_t left_ = 0;           // bytes that have not come
  std::byte* place_ = nullptr;     // where they go; null: nowhere
  link_transfer* into_ = nullptr;  // the receive that they are for
  bool is_keeping_ = false;        // they are for the last one in `kept_`
};

}  // namespace hfcomm::engines
