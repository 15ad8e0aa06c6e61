// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/epoll.h>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/engine/links/link.hpp>
#include <hfcomm/engine/links/tcp_connector.hpp>
#include <hfcomm/engine/links/tcp_stream.hpp>
#include <hfcomm/machine/shared_segment.hpp>
#include <hfcomm/machine/waiting.hpp>

namespace hfcomm::engines {

/// The link over TCP alone, with no library: one connection between two machines, made when the lower one first starts
/// a transfer with the other.
class tcp final : public link {
 public:
  /// `interfaces` are those by which others reach this machine, as HFCOMM_INTERFACE names them; null: as that variable
  /// does. Throws engine_error.
  explicit tcp(const char* interfaces = nullptr)
      : link("tcp", true, std::size_t{1} << 20),
        events_(::epoll_create1(EPOLL_CLOEXEC)),
        connector_(interfaces != nullptr ? interfaces : std::getenv("HFCOMM_INTERFACE")) {
    if (!events_) {
      throw_link_error("tcp", detail::concat({"epoll_create1: ", std::strerror(errno)}));
    }
  }
  ~tcp() override {
    for (int machine = 0; machine < count_; ++machine) {
      give_up(machine);
    }
  }

  [[nodiscard]] std::vector<std::byte> address() const override {
    return published_address(name(), connector_.address());
  }

  void open(int self, std::vector<std::vector<std::byte>> addresses) override {
    self_ = self;
    count_ = static_cast<int>(addresses.size());
    peers_ = std::make_unique<peer[]>(addresses.size());  // NOLINT(*avoid-c-arrays)
    connector_.open(self, own_addresses(name(), std::move(addresses)), events_.get());
  }

  void start(link_transfer& one) noexcept override {
    const int machine = one.machine;
    peer& other = peer_of(machine);
    if (other.is_gone) {
      one.finish(false);
      return;
    }
    if (one.sends && !std::exchange(other.is_unsent, true)) {
      unsent_.push_back(machine);
    }
    tcp_stream& stream = stream_of(other);
    stream.start(one);
    if (self_ < machine && !std::exchange(other.is_asked, true) && !connector_.connect(machine)) {
      stream.fail();
    }
  }

  void cancel(link_transfer& receive) noexcept override {
    if (auto& stream = peer_of(receive.machine).stream; stream != nullptr) {
      stream->cancel(receive);
    }
  }

  bool progress() noexcept override {
    bool moved = false;
    for (const int machine : unsent_) {
      peer_of(machine).is_unsent = false;
      moved = peer_of(machine).stream->send(false) || moved;
    }
    unsent_.clear();
    if (std::exchange(is_due_, false)) {
      for (int machine = 0; machine < count_; ++machine) {
        const auto& stream = peer_of(machine).stream;
        moved = (stream != nullptr && stream->is_due() && receive(*stream, false)) || moved;
      }
    }
    std::array<epoll_event, 32> news;
    const int count = ::epoll_wait(events_.get(), news.data(), static_cast<int>(news.size()), 0);
    for (int index = 0; index < count; ++index) {
      moved = take(news[static_cast<std::size_t>(index)]) || moved;
    }
    return moved;
  }

  [[nodiscard]] bool prepare_sleep() noexcept override { return !is_due_ && unsent_.empty(); }

  void sleep(int descriptor, std::chrono::microseconds most) noexcept override {
    std::array<pollfd, 2> events{{{descriptor, POLLIN, 0}, {events_.get(), POLLIN, 0}}};
    detail::poll_events(events, most);
  }

  void give_up(int machine) noexcept override {
    peer& other = peer_of(machine);
    other.is_gone = true;
    connector_.forget(machine);
    if (other.stream != nullptr) {
      other.stream->give_up();
    }
  }

  [[nodiscard]] int failing_machine() const noexcept override {
    for (int machine = 0; machine < count_; ++machine) {
      const peer& one = peer_of(machine);
      if (!one.is_gone && one.stream != nullptr && one.stream->has_failed()) {
        return machine;
      }
    }
    return -1;
  }

 private:
  struct peer {
    std::unique_ptr<tcp_stream> stream;  // null before its first transfer
    bool is_asked = false;               // this machine has begun to connect
    bool is_unsent = false;              // it is in `unsent_`
    bool is_gone = false;                // given up
  };

  [[nodiscard]] peer& peer_of(int machine) const noexcept { return peers_[static_cast<std::size_t>(machine)]; }
  static tcp_stream& stream_of(peer& one) noexcept {
    if (one.stream == nullptr) {
      one.stream = std::make_unique<tcp_stream>();
    }
    return *one.stream;
  }

  bool receive(tcp_stream& from, bool is_ending) noexcept {
    const bool moved = from.receive(is_ending);
    is_due_ = is_due_ || from.is_due();
    return moved;
  }

  /// Takes news of a descriptor. Returns whether a transfer has moved.
  bool take(const epoll_event& news) noexcept {
    if (news.data.u64 >= tcp_connector::first_key) {
      if (auto made = connector_.take(news.data.u64); made.machine >= 0) {
        take_connection(peer_of(made.machine), std::move(made));
        return true;
      }
      return false;
    }
    tcp_stream& stream = *peer_of(static_cast<int>(news.data.u64)).stream;
    const bool has_received = receive(stream, (news.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0);
    return ((news.events & EPOLLOUT) != 0 && stream.send(true)) || has_received;
  }

  void take_connection(peer& with, tcp_connector::result made) noexcept {
    tcp_stream& stream = stream_of(with);
    if (with.is_gone || stream.is_connected() || stream.has_failed()) {
      return;
    }
    if (!made.socket) {
      stream.fail();
      return;
    }
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    event.data.u64 = static_cast<std::uint64_t>(made.machine);
    ::epoll_ctl(events_.get(), EPOLL_CTL_MOD, made.socket.get(), &event);
    stream.connect(std::move(made.socket));
  }

  rendezvous::unique_fd events_;
  tcp_connector connector_;
  int self_ = -1;
  int count_ = 0;
  std::unique_ptr<peer[]> peers_;           // NOLINT(*avoid-c-arrays): by machine
  bool is_due_ = false;                     // one of their streams is
  hfcomm::detail::plain_list<int> unsent_;  // machines for which sends have been started since the last `progress`
};

inline link_kind tcp_kind() {
  return {
      .name = "tcp",
      .how_to_install = {},
      .make = []() -> std::unique_ptr<link> { return std::make_unique<tcp>(); },
  };
}

}  // namespace hfcomm::engines
