// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/socket.h>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/engine/links/link.hpp>
#include <hfcomm/machine/shared_segment.hpp>
#include <hfcomm/machine/tcp_socket.hpp>
#include <hfcomm/machine/unix_socket.hpp>

namespace hfcomm::engines {

/// A meeting of the links of all machines, over TCP and through machine 0: Gloo has an address for each pair of
/// machines, and none before it knows how many there are. Throws engine_error where it takes longer than the time
/// limit.
class gloo_mesh {
 public:
  /// Bytes of an address of a pair, with its length in the first two.
  static constexpr std::size_t address_bytes = 256;

  /// Listens at a numeric address.
  explicit gloo_mesh(std::string host) : host_(std::move(host)) {
    const auto found = rendezvous::resolve(host_, 0);
    if (!found.addresses.empty()) {
      listener_ = rendezvous::listen_at(found.addresses.front());
    }
    if (!listener_) {
      const std::string problem = found.problem.empty() ? std::strerror(errno) : found.problem;
      throw_link_error("gloo", detail::concat({"cannot listen at ", host_, ": ", problem}));
    }
  }

  /// Returns "HOST PORT".
  [[nodiscard]] std::string address() const {
    return detail::concat({host_, ' ', rendezvous::address_of(listener_.get(), ::getsockname).port()});
  }

  /// Returns the addresses of all machines' pairs, `own` of each machine one after the other. `root` is the address of
  /// machine 0.
  std::vector<std::byte> all_gather(int self, int count, const std::vector<std::byte>& own, const std::string& root) {
    end_ = rendezvous::deadline::in(std::chrono::seconds(60));
    std::vector<std::byte> all(own.size() * static_cast<std::size_t>(count));
    if (self == 0) {
      std::memcpy(all.data(), own.data(), own.size());
      std::vector<bool> has_come(static_cast<std::size_t>(count));
      std::vector<rendezvous::unique_fd> sockets;
      while (sockets.size() + 1 < static_cast<std::size_t>(count)) {
        take_part(all, own.size(), has_come, sockets);
      }
      for (const auto& one : sockets) {
        send(one.get(), all);
      }
    } else {
      const auto socket = connect_to(root);
      const auto number = static_cast<std::uint32_t>(self);
      send(socket.get(), std::as_bytes(std::span(&number, 1)));
      send(socket.get(), own);
      receive(socket.get(), all);
    }
    return all;
  }

 private:
  [[nodiscard]] rendezvous::unique_fd connect_to(const std::string& root) const {
    const auto blank = root.find(' ');
    const std::string host = root.substr(0, blank);
    const std::string port = root.substr(blank + 1);
    const auto found = rendezvous::resolve(host, static_cast<std::uint16_t>(std::atoi(port.c_str())));
    rendezvous::unique_fd made;
    int problem = 0;
    if (!found.addresses.empty()) {
      const auto& address = found.addresses.front();
      made = rendezvous::tcp_socket(address.family());
      problem = made && ::connect(made.get(), address.get(), address.length) == 0 ? 0 : errno;
      if (problem == EINPROGRESS) {
        wait(made.get(), POLLOUT);
        problem = rendezvous::error_of(made.get());
      }
    }
    if (found.addresses.empty() || problem != 0) {
      const std::string text = found.problem.empty() ? std::strerror(problem) : found.problem;
      throw_link_error("gloo", detail::concat({"cannot connect to ", host, " port ", port, ": ", text}));
    }
    return made;
  }

  /// Takes the next connection, if it is that of a machine that has not come yet, with its part. Others are closed.
  void take_part(std::vector<std::byte>& all, std::size_t length, std::vector<bool>& has_come,
                 std::vector<rendezvous::unique_fd>& sockets) {
    wait(listener_.get(), POLLIN);
    rendezvous::unique_fd one(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!one) {
      return;
    }
    const auto end = end_;
    end_.at = std::min(end_.at, rendezvous::clock::now() + std::chrono::seconds(2));
    try {
      std::uint32_t machine = 0;
      receive(one.get(), std::as_writable_bytes(std::span(&machine, 1)));
      if (machine != 0 && machine < has_come.size() && !has_come[machine]) {
        receive(one.get(), std::span(all).subspan(machine * length, length));
        has_come[machine] = true;
        sockets.push_back(std::move(one));
      }
    } catch (const engine_error&) {  // NOLINT(bugprone-empty-catch): a stranger, who is silent or has gone
    }
    end_ = end;
  }

  void wait(int socket, short events) const {
    const auto left = end_.milliseconds_left();
    pollfd event{socket, events, 0};
    if (left <= 0 || ::poll(&event, 1, left) == 0) {
      throw_link_error(
          "gloo", detail::concat({"timed out: not all machines have connected to the one at ", host_, " within 60 s"}));
    }
  }

  void send(int socket, std::span<const std::byte> bytes) const {
    move(socket, POLLOUT, bytes.size(), [&](std::size_t done) {
      return ::send(socket, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    });
  }

  void receive(int socket, std::span<std::byte> bytes) const {
    move(socket, POLLIN, bytes.size(),
         [&](std::size_t done) { return ::recv(socket, bytes.data() + done, bytes.size() - done, MSG_DONTWAIT); });
  }

  template <class Function>
  void move(int socket, short events, std::size_t length, Function part) const {
    for (std::size_t done = 0; done < length;) {
      wait(socket, events);
      const auto moved = part(done);
      if (moved == 0 || (moved < 0 && errno != EAGAIN && errno != EINTR)) {
        throw_link_error("gloo", "a machine has left while the machines connected");
      }
      done += moved > 0 ? static_cast<std::size_t>(moved) : 0;
    }
  }

  std::string host_;
  rendezvous::unique_fd listener_;
  rendezvous::deadline end_;
};

}  // namespace hfcomm::engines
