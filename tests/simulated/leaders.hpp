// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/hierarchical/control_channel.hpp>
#include <hfcomm/machine/shared_segment.hpp>
#include <hfcomm/machine/tcp_socket.hpp>
#include <hfcomm/rendezvous/address_exchange.hpp>
#include <hfcomm/rendezvous/credentials.hpp>
#include <hfcomm/rendezvous/crypto.hpp>
#include <hfcomm/rendezvous/job_plan.hpp>
#include <hfcomm/rendezvous/machine_start.hpp>
#include <hfcomm/rendezvous/side_claims.hpp>
#include <hfcomm/rendezvous/side_connection.hpp>
#include <hfcomm/rendezvous/side_control.hpp>
#include <hfcomm/rendezvous/side_handshake.hpp>
#include <hfcomm/rendezvous/side_stream.hpp>
#include <hfcomm/serialization/encoding.hpp>
#include <hfcomm/serialization/std_types.hpp>

#include "job.hpp"

namespace simulated {

/// The leaders of all machines but the root's. They speak the real protocol, and make neither memory nor agents.
class leaders {
 public:
  enum class stage { absent, connecting, proving, joined, ready, started };

  /// The messages that have come to all leaders together.
  struct totals {
    std::size_t bytes = 0;  ///< Of handshakes and messages.
    std::size_t beats = 0;
    std::size_t endings = 0;  ///< Of ranks, however many in a message.
    std::size_t losses = 0;
  };

  leaders(const job& what, const rendezvous::root_address& root)
      : job_(what),
        key_(what.key + '/' + root.nonce),
        proof_(what.proof()),
        address_(rendezvous::resolve(root.hosts.at(0), root.ports.at(0)).addresses.at(0)),
        events_(::epoll_create1(EPOLL_CLOEXEC)),
        all_(static_cast<std::size_t>(what.machines)) {}

  /// Lets the leader of a machine connect.
  void connect(int machine) {
    leader& one = leader_of(machine);
    one.connecting = rendezvous::tcp_socket(address_.family());
    if (job_.has_small_buffers) {
      const int segment = 536;
      const int buffer = 4096;
      ::setsockopt(one.connecting.get(), IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof(segment));
      ::setsockopt(one.connecting.get(), SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
    }
    require(one.connecting &&
                (::connect(one.connecting.get(), address_.get(), address_.length) == 0 || errno == EINPROGRESS),
            machine, "cannot connect");
    one.at = stage::connecting;
    watch(machine, EPOLL_CTL_ADD, EPOLLOUT);
  }

  /// Handles what has happened, or waits for events, `most` at most.
  void progress(std::chrono::milliseconds most) {
    std::array<epoll_event, 256> happened;
    const int count =
        ::epoll_wait(events_.get(), happened.data(), static_cast<int>(happened.size()), static_cast<int>(most.count()));
    for (const epoll_event& event : std::span(happened).first(static_cast<std::size_t>(std::max(count, 0)))) {
      go_on(static_cast<int>(event.data.u32));
    }
  }

  /// Says that a rank has left the job.
  void leave(int machine, int rank) {
    std::vector<std::byte> bytes;
    hfcomm::encode(std::vector<ended_rank>{{rank, 3, "has left the job"}}, bytes);
    send(machine, engines::control_kind::rank_ended, bytes);
  }

  /// Sends a message of a machine's agent to the root's.
  void send(int machine, engines::control_kind kind, std::span<const std::byte> bytes = {}) {
    constexpr std::uint8_t first = rendezvous::side_control::first_kind;
    send(machine, static_cast<std::uint8_t>(first + static_cast<std::uint8_t>(kind)), bytes);
  }

  /// Ends a machine's connection.
  void close(int machine) { leader_of(machine) = {}; }

  /// Returns the number of machines that have come so far, or farther.
  [[nodiscard]] int count(stage least) const {
    return static_cast<int>(
        std::count_if(all_.begin(), all_.end(), [&](const leader& one) { return one.at >= least; }));
  }
  [[nodiscard]] const totals& received() const noexcept { return received_; }
  [[nodiscard]] std::size_t sent_bytes() const noexcept { return sent_bytes_; }
  /// Returns the error with which the root has refused a machine; empty where it has not.
  [[nodiscard]] const std::string& error(int machine) const { return all_[static_cast<std::size_t>(machine)].error; }
  /// Returns the plan that the leader of a machine has got, encoded.
  [[nodiscard]] const std::vector<std::byte>& plan(int machine) const {
    return all_[static_cast<std::size_t>(machine)].plan.bytes();
  }

 private:
  using ended_rank = std::tuple<int, int, std::string>;  // as engines::job_liveness sends it

  struct leader {
    stage at = stage::absent;
    rendezvous::unique_fd connecting;
    std::optional<rendezvous::side_connection> connection;
    bool wants_write = false;
    rendezvous::plan_receiver plan;
    std::string error;
  };

  [[nodiscard]] leader& leader_of(int machine) { return all_[static_cast<std::size_t>(machine)]; }

  static void require(bool is_right, int machine, const std::string& problem) {
    if (!is_right) {
      throw std::runtime_error("machine " + std::to_string(machine) + ": " + problem);
    }
  }

  void watch(int machine, int action, std::uint32_t wanted) {
    const leader& one = leader_of(machine);
    epoll_event event{};
    event.events = wanted;
    event.data.u32 = static_cast<std::uint32_t>(machine);
    const int fd = one.connection ? one.connection->fd() : one.connecting.get();
    require(::epoll_ctl(events_.get(), action, fd, &event) == 0, machine, "cannot be watched");
  }

  void go_on(int machine) {
    leader& one = leader_of(machine);
    if (one.at == stage::connecting) {
      begin_handshake(machine);
    }
    if (one.at == stage::proving) {
      continue_handshake(machine);
    }
    if (one.at > stage::proving && one.connection) {
      receive_all(machine);
    }
  }

  void begin_handshake(int machine) {
    leader& one = leader_of(machine);
    const auto own = rendezvous::admission{proof_, key_, 0, job_.world_size, machine};
    one.connection.emplace(std::move(one.connecting), rendezvous::side_role::connector,
                           std::make_shared<const rendezvous::admission>(own));
    one.at = stage::proving;
    watch(machine, EPOLL_CTL_MOD, EPOLLIN);
  }

  void continue_handshake(int machine) {
    leader& one = leader_of(machine);
    one.connection->continue_handshake();
    require(!one.connection->is_closed(), machine, one.connection->close_reason());
    if (one.connection->verdict() == rendezvous::side_verdict::proven) {
      received_.bytes += rendezvous::side_stream::most_unproven_bytes;
      sent_bytes_ += rendezvous::side_stream::most_unproven_bytes;
      one.at = stage::joined;
      send(machine, static_cast<std::uint8_t>(rendezvous::start_kind::join), job_.part(machine).encode());
    }
  }

  void receive_all(int machine) {
    leader& one = leader_of(machine);
    while (auto message = one.connection->receive()) {
      received_.bytes += size_of(message->bytes.size());
      take(machine, std::move(*message));
    }
    if (!one.error.empty()) {
      one.connection.reset();
      return;
    }
    require(!one.connection->is_closed(), machine, one.connection->close_reason());
    update(machine);
  }

  void take(int machine, rendezvous::side_message message) {
    leader& one = leader_of(machine);
    try {
      rendezvous::machine_start::throw_if_error(message);
    } catch (const hfcomm::error& problem) {
      one.error = problem.detail();
      return;
    }
    if (one.plan.take(message)) {
      one.at = stage::ready;
      send(machine, static_cast<std::uint8_t>(rendezvous::start_kind::ready), {});
    } else if (static_cast<rendezvous::start_kind>(message.kind) == rendezvous::start_kind::go) {
      one.at = stage::started;
    } else if (message.kind >= rendezvous::side_control::first_kind) {
      const auto kind = static_cast<engines::control_kind>(message.kind - rendezvous::side_control::first_kind);
      received_.beats += kind == engines::control_kind::beat ? 1 : 0;
      received_.endings += kind == engines::control_kind::rank_ended ? number_of_endings(message.bytes) : 0;
      received_.losses += kind == engines::control_kind::machine_lost ? 1 : 0;
    }
  }

  [[nodiscard]] static std::size_t number_of_endings(std::span<const std::byte> bytes) {
    std::vector<ended_rank> all;
    hfcomm::decode_into(all, bytes);
    return all.size();
  }

  void send(int machine, std::uint8_t kind, std::span<const std::byte> bytes) {
    leader_of(machine).connection->send(kind, bytes);
    sent_bytes_ += size_of(bytes.size());
    update(machine);
  }

  /// Watches for room to send where something is queued.
  void update(int machine) {
    leader& one = leader_of(machine);
    if (one.connection->wants_write() != one.wants_write) {
      one.wants_write = !one.wants_write;
      watch(machine, EPOLL_CTL_MOD, one.wants_write ? EPOLLIN | EPOLLOUT : EPOLLIN);
    }
  }

  /// Returns the bytes of a message on its way.
  [[nodiscard]] std::size_t size_of(std::size_t content) const {
    return content + 5 + (proof_.has_secret() ? rendezvous::crypto::tag_bytes : 0);
  }

  job job_;
  std::string key_;
  rendezvous::credentials proof_;
  rendezvous::tcp_address address_;
  rendezvous::unique_fd events_;  // epoll
  std::vector<leader> all_;       // by machine; the root's is empty
  totals received_;
  std::size_t sent_bytes_ = 0;
};

}  // namespace simulated
