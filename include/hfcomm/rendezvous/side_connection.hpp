// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <poll.h>
#include <sys/socket.h>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/machine/shared_segment.hpp>
#include <hfcomm/machine/tcp_socket.hpp>
#include <hfcomm/rendezvous/side_claims.hpp>
#include <hfcomm/rendezvous/side_handshake.hpp>
#include <hfcomm/rendezvous/side_stream.hpp>

namespace hfcomm::rendezvous {

/// A TCP connection to a process of this job on another machine (see side_stream). Nothing here waits. One
/// thread at a time may use it.
///
/// A peer that falls silent is not noticed here: those who use the connection expect messages in time.
class side_connection {
 public:
  /// Time for the whole handshake, from the connection on.
  static constexpr std::chrono::seconds handshake_limit{5};

  /// Takes a connected socket that does not block, and begins the handshake.
  side_connection(unique_fd fd, side_role role, const std::shared_ptr<const admission>& own)
      : fd_(std::move(fd)),
        stream_(role, own),
        local_address_(address_of(fd_.get(), ::getsockname).text()),
        peer_address_(address_of(fd_.get(), ::getpeername).text()) {
    send_without_delay(fd_.get());
    flush();
  }

  /// The descriptor for poll; -1 after the end.
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  /// Appends what poll should wait for.
  void add_to(detail::plain_list<pollfd>& events) const {
    if (!is_closed()) {
      events.push_back({fd(), static_cast<short>(wants_write() ? POLLIN | POLLOUT : POLLIN), 0});
    }
  }

  /// Continues the handshake with what has come. Closes the connection where the other end is not proven.
  void continue_handshake() {
    while (verdict() == side_verdict::pending && read_some()) {
    }
    if (!stream_.problem().empty()) {
      close(stream_.problem());
    }
  }
  // See side_handshake.
  [[nodiscard]] side_verdict verdict() const noexcept { return stream_.verdict(); }
  [[nodiscard]] bool has_hello() const noexcept { return stream_.has_hello(); }
  [[nodiscard]] const side_claims& peer() const noexcept { return stream_.peer(); }

  /// Queues a message of at most 16 MiB, and sends what the system takes at once. Does nothing after the end.
  void send(std::uint8_t kind, byte_view bytes) {
    if (!is_closed()) {
      stream_.send(kind, bytes);
      flush();
    }
  }
  /// Sends more of the queue.
  void flush();
  /// Returns whether bytes are queued, so that `flush` is to be called when the socket takes more.
  [[nodiscard]] bool wants_write() const { return !is_closed() && !stream_.output().empty(); }
  /// Returns the number of bytes that are queued.
  [[nodiscard]] std::size_t queued_bytes() const { return stream_.output().size(); }

  /// Returns the next message; nullopt where none is complete yet, or none will come. After the end it returns those
  /// that came before. Sends more of the queue, too.
  [[nodiscard]] std::optional<side_message> receive() {
    flush();
    while (true) {
      auto message = stream_.next();
      if (!stream_.problem().empty()) {
        close(stream_.problem());
      }
      if (message || !read_some()) {
        return message;
      }
    }
  }

  [[nodiscard]] bool is_closed() const noexcept { return !fd_; }
  /// Returns why the connection is closed; empty while it is not.
  [[nodiscard]] const std::string& close_reason() const noexcept { return close_reason_; }
  /// Closes the connection, without what is queued. Does nothing where it is closed.
  void close(std::string reason) {
    if (!is_closed()) {
      close_reason_ = std::move(reason);
      fd_.close();
    }
  }

  /// The addresses as texts: "10.0.0.1:29600", "[fd77::1]:29600".
  [[nodiscard]] const std::string& local_address() const noexcept { return local_address_; }
  [[nodiscard]] const std::string& peer_address() const noexcept { return peer_address_; }

 private:
  /// Reads what has come. Returns whether there were bytes.
  bool read_some();

  /// Closes after an end that no message announced. Before the proof, the connector learns what may be the reason.
  void close_after(const std::string& what) {
    const char* const advice = stream_.is_sealed()
                                   ? "the proof of the job's secret: is HFCOMM_SECRET the same on all machines?"
                                   : "the end of the handshake: is HFCOMM_AUTH the same on all machines?";
    const bool needs_advice = verdict() == side_verdict::pending && stream_.role() == side_role::connector;
    close(needs_advice ? detail::concat({"connection closed before ", advice, " (", what, ')'}) : what);
  }

  unique_fd fd_;
  side_stream stream_;
  std::string local_address_;
  std::string peer_address_;
  std::string close_reason_;
};

inline void side_connection::flush() {
  while (wants_write()) {
    const byte_view output = stream_.output();
    const auto sent = ::send(fd_.get(), output.data(), output.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      stream_.has_sent(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      // Messages that came before are still to be read, and the end with them.
      stream_.has_sent(output.size());
      return;
    }
  }
}

inline bool side_connection::read_some() {
  if (is_closed()) {
    return false;
  }
  std::array<std::byte, 65536> buffer;
  const std::size_t most = verdict() == side_verdict::pending ? side_stream::most_unproven_bytes : buffer.size();
  const auto count = ::recv(fd_.get(), buffer.data(), most, 0);
  if (count > 0) {
    stream_.receive(std::span(buffer).first(static_cast<std::size_t>(count)));
    flush();
    return true;
  }
  if (count == 0) {
    close_after("the other end closed the connection");
  } else if (errno != EAGAIN && errno != EINTR) {
    close_after(std::strerror(errno));
  }
  return false;
}

}  // namespace hfcomm::rendezvous
