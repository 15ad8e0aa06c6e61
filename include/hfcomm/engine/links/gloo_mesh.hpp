// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/engine/links/network_interface.hpp>
#include <hfcomm/engine/links/registry.hpp>

namespace hfcomm::engines {

/// A meeting of the links of all machines, over TCP and through machine 0: Gloo has an address for each pair of
/// machines, and none before it knows how many there are. Throws engine_error where it takes longer than the time
/// limit.
class gloo_mesh {
 public:
  /// Bytes of an address of a pair, with its length in the first two.
  static constexpr std::size_t address_bytes = 256;

  /// Listens at a numeric address.
  explicit gloo_mesh(std::string host) : host_(std::move(host)), listener_(make_socket(host_, "0", true)) {
    sockaddr_storage bound{};
    socklen_t length = sizeof(bound);
    std::array<char, NI_MAXSERV> port{};
    if (::getsockname(listener_, reinterpret_cast<sockaddr*>(&bound), &length) != 0 ||
        ::getnameinfo(reinterpret_cast<sockaddr*>(&bound), length, nullptr, 0, port.data(), port.size(),
                      NI_NUMERICSERV) != 0) {
      throw_link_error("gloo", detail::concat({"cannot listen at ", host_, ": ", std::strerror(errno)}));
    }
    port_ = port.data();
  }
  gloo_mesh(const gloo_mesh&) = delete;
  gloo_mesh& operator=(const gloo_mesh&) = delete;
  ~gloo_mesh() { ::close(listener_); }

  /// Returns "HOST PORT".
  [[nodiscard]] std::string address() const { return detail::concat({host_, ' ', port_}); }

  /// Returns the addresses of all machines' pairs, `own` of each machine one after the other. `root` is the address of
  /// machine 0.
  std::vector<std::byte> all_gather(int self, int count, const std::vector<std::byte>& own, const std::string& root) {
    end_ = clock::now() + std::chrono::seconds(60);
    std::vector<std::byte> all(own.size() * static_cast<std::size_t>(count));
    std::vector<int> sockets;
    try {
      if (self == 0) {
        std::memcpy(all.data(), own.data(), own.size());
        std::vector<bool> has_come(static_cast<std::size_t>(count));
        while (sockets.size() + 1 < static_cast<std::size_t>(count)) {
          take_part(all, own.size(), has_come, sockets);
        }
        for (const int one : sockets) {
          send(one, all);
        }
      } else {
        const auto blank = root.find(' ');
        sockets.push_back(make_socket(root.substr(0, blank), root.substr(blank + 1), false));
        const auto number = static_cast<std::uint32_t>(self);
        send(sockets[0], std::as_bytes(std::span(&number, 1)));
        send(sockets[0], own);
        receive(sockets[0], all);
      }
    } catch (...) {
      close_all(sockets);
      throw;
    }
    close_all(sockets);
    return all;
  }

 private:
  using clock = std::chrono::steady_clock;

  static int make_socket(const std::string& host, const std::string& port, bool listens) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    int made = -1;
    const int unresolved = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
    bool succeeds = unresolved == 0;
    if (succeeds) {
      made = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
      succeeds =
          made >= 0 && (listens ? ::bind(made, found->ai_addr, found->ai_addrlen) == 0 && ::listen(made, 128) == 0
                                : ::connect(made, found->ai_addr, found->ai_addrlen) == 0);
      ::freeaddrinfo(found);
    }
    if (!succeeds) {
      const std::string problem = unresolved != 0 ? ::gai_strerror(unresolved) : std::strerror(errno);
      ::close(made);
      throw_link_error("gloo", detail::concat({listens ? "cannot listen at " : "cannot connect to ", host, " port ",
                                               port, ": ", problem}));
    }
    return made;
  }

  /// Takes the next connection, if it is that of a machine that has not come yet, with its part. Others are closed.
  void take_part(std::vector<std::byte>& all, std::size_t length, std::vector<bool>& has_come,
                 std::vector<int>& sockets) {
    wait(listener_, POLLIN);
    const int one = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (one < 0) {
      return;
    }
    const auto end = std::exchange(end_, std::min(end_, clock::now() + std::chrono::seconds(2)));
    bool is_machine = false;
    try {
      std::uint32_t machine = 0;
      receive(one, std::as_writable_bytes(std::span(&machine, 1)));
      if (machine != 0 && machine < has_come.size() && !has_come[machine]) {
        receive(one, std::span(all).subspan(machine * length, length));
        has_come[machine] = true;
        is_machine = true;
      }
    } catch (const engine_error&) {  // NOLINT(bugprone-empty-catch): a stranger, who is silent or has gone
    }
    end_ = end;
    if (is_machine) {
      sockets.push_back(one);
    } else {
      ::close(one);
    }
  }

  void wait(int socket, short events) const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - clock::now()).count();
    pollfd event{socket, events, 0};
    if (left <= 0 || ::poll(&event, 1, static_cast<int>(left)) == 0) {
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

  static void close_all(const std::vector<int>& sockets) noexcept {
    for (const int one : sockets) {
      ::close(one);
    }
  }

  std::string host_;
  std::string port_;
  int listener_;
  clock::time_point end_{};
};

}  // namespace hfcomm::engines
