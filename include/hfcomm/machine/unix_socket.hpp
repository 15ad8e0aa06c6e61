// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/hash.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/machine/process_state.hpp>
#include <hfcomm/machine/shared_segment.hpp>

namespace hfcomm::rendezvous {

using clock = std::chrono::steady_clock;

/// The time at which a wait ends; never, where the user asked for no limit.
struct deadline {
  clock::time_point at = clock::time_point::max();

  static deadline in(std::chrono::nanoseconds timeout) {
    const auto now = clock::now();
    return timeout.count() > 0 && timeout < clock::time_point::max() - now ? deadline{now + timeout} : deadline{};
  }
  [[nodiscard]] bool passed() const { return passed_by(clock::duration::zero()); }
  /// Returns the time that is left; negative: no limit.
  [[nodiscard]] std::int32_t milliseconds_left() const {
    if (at == clock::time_point::max()) {
      return -1;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(at - clock::now()).count();
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(left, 0, 1'000'000'000));
  }
  /// Returns whether the deadline passed at least `more` ago.
  [[nodiscard]] bool passed_by(clock::duration more) const {
    return at != clock::time_point::max() && clock::now() - more >= at;
  }
};

struct packet {
  std::vector<std::byte> bytes;
  std::vector<unique_fd> fds;
};

/// Returns whether this process's user number stands for several users. In a user namespace the kernel shows all users
/// without a number there as one, the overflow user, mostly 65534.
[[gnu::cold]] inline bool user_is_ambiguous() {
  unsigned overflow_user = 65534;
  std::sscanf(proc::read_beginning("/proc/sys/kernel/overflowuid").c_str(), "%u", &overflow_user);
  if (::geteuid() != overflow_user) {
    return false;
  }
  unsigned first_inside = 0;
  unsigned first_outside = 0;
  unsigned count = 0;
  const bool is_known = std::sscanf(proc::read_beginning("/proc/self/uid_map").c_str(), "%u %u %u", &first_inside,
                                    &first_outside, &count) == 3;
  const bool is_initial_namespace = is_known && first_inside == 0 && first_outside == 0 && count == 0xffffffff;
  return !is_initial_namespace;
}

/// One end of a connection between two processes of this machine and this user. Its packets are sequenced: a message
/// arrives whole or not at all, so no length word has to be trusted.
class local_connection {
 public:
  static constexpr std::size_t max_packet = 4096;
  static constexpr std::size_t max_fds = 8;

  explicit local_connection(unique_fd fd) : fd_(std::move(fd)) {}

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

  /// Returns whether the other end runs as this user. The kernel answers, not the peer.
  [[nodiscard]] bool same_user() const {
    ucred peer{};
    socklen_t length = sizeof(peer);
    return ::getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::geteuid() &&
           !user_is_ambiguous();
  }

  /// Sends a message; returns false where the peer has gone.
  bool send(std::span<const std::byte> bytes, std::span<const int> fds = {}) {
    iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * max_fds)> control{};
    if (!fds.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = CMSG_SPACE(fds.size_bytes());
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(fds.size_bytes());
      std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
    }
    ssize_t sent = -1;
    do {
      sent = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent == static_cast<ssize_t>(bytes.size());
  }

  /// Waits up to `slice` for a message. Returns nullopt where none came, and an empty packet where the peer has gone.
  [[gnu::cold]] std::optional<packet> receive(std::chrono::milliseconds slice) {
    pollfd event{fd_.get(), POLLIN, 0};
    if (::poll(&event, 1, static_cast<int>(slice.count())) <= 0) {
      return std::nullopt;
    }
    packet result;
    result.bytes.resize(max_packet);
    iovec part{result.bytes.data(), result.bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * max_fds)> control{};
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t received = ::recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (received < 0 && (errno == EINTR || errno == EAGAIN)) {
      return std::nullopt;
    }
    result.bytes.resize(received > 0 ? static_cast<std::size_t>(received) : 0);
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
        const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t index = 0; index < count; ++index) {
          int fd = -1;
          std::memcpy(&fd, CMSG_DATA(header) + index * sizeof(int), sizeof(int));
          result.fds.emplace_back(fd);
        }
      }
    }
    return result;
  }

 private:
  unique_fd fd_;
};

/// Returns a socket for packets, with more of `flags`. Throws engine_error.
inline unique_fd local_socket(int flags = 0) {
  unique_fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
  if (!fd) {
    throw_system("creating a local socket");
  }
  return fd;
}

/// Returns an address in the abstract namespace: no file, gone with the process. Such names have no permissions either,
/// so both ends ask the kernel for the other's user before they trust it.
inline std::pair<sockaddr_un, socklen_t> abstract_address(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t length = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length)};
}

inline std::string hexadecimal(std::uint64_t value) {
  std::string text(16, '0');
  for (std::size_t index = 0; index < 16; ++index) {
    text[15 - index] = "0123456789abcdef"[(value >> (4 * index)) & 15];
  }
  return text;
}

/// Returns the socket name of a key that only the ranks of one job and one user share.
[[gnu::cold]] inline std::string socket_name(std::string_view key) {
  return detail::concat({"hfcomm-", ::geteuid(), '-', hexadecimal(detail::fnv1a(key)),
                         hexadecimal(detail::fnv1a(key, 0x6c62272e07bb0142ULL))});
}

/// A listening socket with a name in the abstract namespace.
class local_listener {
 public:
  /// Throws engine_error where another process has the name.
  [[gnu::cold]] explicit local_listener(const std::string& name) : local_listener(local_socket()) {
    if (!listen_at(name)) {
      detail::throw_error<engine_error>({"another process already waits for the ranks of this job (socket @", name,
                                         " is taken): is a second job starting with the same address, port or "
                                         "job name, or is rank 0 started twice?"});
    }
  }
  /// Returns nullopt where another process has the name.
  static std::optional<local_listener> try_at(const std::string& name) {
    local_listener listener(local_socket());
    return listener.listen_at(name) ? std::optional<local_listener>(std::move(listener)) : std::nullopt;
  }

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

  /// Returns a connection of this user, or nullopt where none came within `slice`. Throws engine_error where this
  /// process has no descriptor or memory for it: the system would offer it again at once, for ever.
  [[gnu::cold]] std::optional<local_connection> accept(std::chrono::milliseconds slice) {
    pollfd event{fd_.get(), POLLIN, 0};
    if (::poll(&event, 1, static_cast<int>(slice.count())) <= 0) {
      return std::nullopt;
    }
    unique_fd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        throw_system("taking a connection to a local socket");
      }
      return std::nullopt;
    }
    local_connection connection(std::move(fd));
    return connection.same_user() ? std::optional<local_connection>(std::move(connection)) : std::nullopt;
  }

 private:
  [[gnu::cold]] explicit local_listener(unique_fd fd) : fd_(std::move(fd)) {}

  /// Returns false where another process has the name.
  [[gnu::cold]] bool listen_at(const std::string& name) {
    const auto [address, length] = abstract_address(name);
    if (::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
      if (errno == EADDRINUSE) {
        return false;
      }
      throw_system(detail::concat({"binding the local socket @", name}));
    }
    if (::listen(fd_.get(), 4096) != 0) {
      throw_system(detail::concat({"listening on the local socket @", name}));
    }
    return true;
  }

  unique_fd fd_;
};

/// Connects to `name`; returns nullopt where no process listens there yet, or where it has to accept others first. Does
/// not wait. Throws engine_error where another user's process listens.
[[gnu::cold]] inline std::optional<local_connection> connect_to(const std::string& name) {
  unique_fd fd = local_socket(SOCK_NONBLOCK);
  const auto [address, length] = abstract_address(name);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    return std::nullopt;
  }
  local_connection connection(std::move(fd));
  if (!connection.same_user()) {
    detail::throw_error<engine_error>({"another user's process listens on the local socket @", name,
                                       user_is_ambiguous() ? ", or one whose user cannot be told from others in "
                                                             "this user namespace: run as another user"
                                                           : ""});
  }
  return connection;
}

}  // namespace hfcomm::rendezvous
