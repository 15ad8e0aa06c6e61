// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/machine/unix_socket.hpp>
#include <hfcomm/rendezvous/handshake.hpp>
#include <hfcomm/rendezvous/machine_memory.hpp>

namespace hfcomm::rendezvous {

/// The ranks of one machine while their job starts, as their leader sees them: the first process of the machine that
/// has the job's socket. Nothing here waits longer than it is told.
class machine_ranks {
 public:
  machine_ranks(local_listener listener, int rank, int world_size, deadline give_up)
      : listener_(std::move(listener)),
        leader_(rank),
        give_up_(give_up),
        members_(static_cast<std::size_t>(world_size)) {}

  [[nodiscard]] int leader() const noexcept { return leader_; }
  [[nodiscard]] int world_size() const noexcept { return static_cast<int>(members_.size()); }
  [[nodiscard]] bool has(int rank) const { return rank == leader_ || member_of(rank).has_come; }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  /// Returns the ranks of the job that have not come to this machine.
  [[nodiscard]] std::vector<int> absent() const {
    std::vector<int> absent;
    for (int rank = 0; rank < world_size(); ++rank) {
      if (!has(rank)) {
        absent.push_back(rank);
      }
    }
    return absent;
  }
  /// The time at which the first rank of the machine gives up.
  [[nodiscard]] const deadline& give_up() const noexcept { return give_up_; }

  [[nodiscard]] int pid(int rank) const { return rank == leader_ ? static_cast<int>(::getpid()) : member_of(rank).pid; }

  /// Takes processes that come, for `slice` at most. Returns whether one was admitted. Throws the reason for which the
  /// job cannot start.
  [[gnu::cold]] bool admit(std::chrono::milliseconds slice) {
    bool any = false;
    detail::plain_list<pollfd> events;
    add_to(events);
    static_cast<void>(::poll(events.data(), static_cast<nfds_t>(events.size()), static_cast<int>(slice.count())));
    try {
      accept_all();
    } catch (const engine_error& problem) {
      detail::throw_error<engine_error>({"rank ", leader_, " cannot take a connection: ", problem.detail()});
    }
    for (std::size_t index = 0; index < unidentified_.size();) {
      auto message = unidentified_[index].receive(std::chrono::milliseconds(0));
      if (!message) {
        ++index;
        continue;
      }
      local_connection connection = std::move(unidentified_[index]);
      unidentified_.erase(unidentified_.begin() + static_cast<std::ptrdiff_t>(index));
      if (const auto introduction = local::hello::from(message->bytes)) {
        take(*introduction, std::move(connection));
        any = true;
      }
    }
    require_all_there();
    return any;
  }

  /// Appends what poll should wait for before `admit` and `all_are_ready`.
  void add_to(detail::plain_list<pollfd>& events) const {
    events.push_back({listener_->fd(), POLLIN, 0});
    for (const auto& connection : unidentified_) {
      events.push_back({connection.fd(), POLLIN, 0});
    }
    for (const joined_rank& member : members_) {
      if (member.has_come && !member.is_ready) {
        events.push_back({member.connection.fd(), POLLIN, 0});
      }
    }
  }

  /// Admits nobody any more. This process may start another job of this name soon, whose ranks must not come here.
  void close() { listener_.reset(); }

  /// Sends each rank what it needs of the machine's memory.
  [[gnu::cold]] void hand_over(const machine_memory& memory, const std::string& agent_socket, int first_rank) {
    std::vector<int> fds{memory.roster->fd(), memory.world->fd()};
    if (memory.bell != nullptr) {
      fds.push_back(memory.bell->segment()->fd());
      fds.push_back(memory.bell->event());
    }
    if (memory.local != nullptr) {
      fds.push_back(memory.local->fd());
    }
    const auto content =
        welcome_packet{.agent = memory.bell != nullptr ? leader_ : -1, .socket = agent_socket}.encode();
    for (int rank = 0; rank < world_size(); ++rank) {
      joined_rank& member = member_of(rank);
      if (member.has_come) {
        auto with = fds;
        if (rank == first_rank && memory.leaders != nullptr) {
          with.push_back(memory.leaders->fd());
        }
        member.connection.send(content, with);
      }
    }
  }

  /// Returns whether all ranks have entered; waits `slice` at most.
  [[gnu::cold]] bool all_are_ready(std::chrono::milliseconds slice) {
    for (int rank = 0; rank < world_size(); ++rank) {
      joined_rank& member = member_of(rank);
      if (!member.has_come || member.is_ready) {
        continue;
      }
      const auto answer = member.connection.receive(slice);
      if (!answer) {
        return false;
      }
      if (!answer->bytes.empty() && answer->bytes.front() == local::failed) {
        detail::throw_error<engine_error>({local::text_of(*answer)});
      }
      if (answer->bytes.empty() || answer->bytes.front() != local::ready) {
        fail_without(rank);
      }
      member.is_ready = true;
    }
    return true;
  }

  /// Returns the first rank that has not entered; -1 where all have.
  [[nodiscard]] int unready() const {
    for (int rank = 0; rank < world_size(); ++rank) {
      if (member_of(rank).has_come && !member_of(rank).is_ready) {
        return rank;
      }
    }
    return -1;
  }

  /// Sends rank 0, which is not the leader, the address at which the leader listens.
  void send_root(const std::string& address) { local::send_text(member_of(0).connection, local::root, address); }

  void let_go() {
    for (joined_rank& member : members_) {
      if (member.has_come) {
        member.connection.send({&local::go, 1});
      }
    }
  }

  /// Sends an error to all ranks of this machine that have connected.
  [[gnu::cold]] void tell(std::byte kind, const std::string& text) {
    try {
      accept_all();
    } catch (const engine_error&) {  // NOLINT(bugprone-empty-catch): they see that the connection closes
    }
    for (joined_rank& member : members_) {
      if (member.has_come) {
        tell(member.connection, kind, text);
      }
    }
    for (auto& connection : unidentified_) {
      tell(connection, kind, text);
    }
  }

  /// The packet with which a leader hands over the machine's memory. Its descriptors: roster, world, then, where there
  /// are several machines, the board and the event of the agent's bell, the group of the machine's ranks if they are
  /// several, and the leaders' group if the rank is the machine's first.
  struct welcome_packet {
    std::int32_t agent = -1;  ///< The agent's rank; -1 where there is one machine.
    std::string socket;       ///< Of the agent.

    [[nodiscard]] std::vector<std::byte> encode() const {
      std::vector<std::byte> bytes{local::welcome};
      const auto agent_bytes = std::as_bytes(std::span(&agent, 1));
      bytes.insert(bytes.end(), agent_bytes.begin(), agent_bytes.end());
      const auto text = std::as_bytes(std::span(socket));
      bytes.insert(bytes.end(), text.begin(), text.end());
      return bytes;
    }
    static std::optional<welcome_packet> decode(std::span<const std::byte> bytes) {
      constexpr std::size_t fixed = 1 + sizeof(std::int32_t);
      if (bytes.size() < fixed || bytes.front() != local::welcome) {
        return std::nullopt;
      }
      welcome_packet packet;
      std::memcpy(&packet.agent, bytes.data() + 1, sizeof(packet.agent));
      packet.socket.assign(reinterpret_cast<const char*>(bytes.data()) + fixed, bytes.size() - fixed);
      return packet;
    }
  };

 private:
  struct joined_rank {
    local_connection connection{unique_fd()};
    int pid = 0;
    bool has_come = false;
    bool is_ready = false;
  };

  [[nodiscard]] joined_rank& member_of(int rank) { return members_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const joined_rank& member_of(int rank) const { return members_[static_cast<std::size_t>(rank)]; }

  /// Sends an error to a rank, after reading what came from it: a socket that is closed with unread packets drops what
  /// the other end has not read either.
  [[gnu::cold]] static void tell(local_connection& connection, std::byte kind, const std::string& text) {
    ::shutdown(connection.fd(), SHUT_RD);
    while (const auto unread = connection.receive(std::chrono::milliseconds(0))) {
      if (unread->bytes.empty()) {
        break;
      }
    }
    local::send_text(connection, kind, text);
  }

  [[gnu::cold]] void accept_all() {
    while (auto connection = listener_ ? listener_->accept(std::chrono::milliseconds(0)) : std::nullopt) {
      unidentified_.push_back(std::move(*connection));
    }
  }

  [[noreturn, gnu::cold]] static void fail_without(int rank) {
    detail::throw_error<engine_error>({"rank ", rank, " went away while the job was starting"});
  }

  void take(const local::hello& peer, local_connection connection) {
    if (const std::string problem = why_it_does_not_fit(peer); !problem.empty()) {
      local::send_text(connection, local::refused, problem);
      detail::throw_error<usage_error>({problem});
    }
    if (peer.milliseconds_left >= 0) {
      give_up_.at = std::min(give_up_.at, clock::now() + std::chrono::milliseconds(peer.milliseconds_left));
    }
    connection.send({&local::admitted, 1});
    member_of(peer.rank) = {.connection = std::move(connection), .pid = peer.pid, .has_come = true};
    ++count_;
  }

  [[nodiscard, gnu::cold]] std::string why_it_does_not_fit(const local::hello& peer) const {
    const std::string who = detail::concat(
        {"the process with pid ", peer.pid, ", which calls itself rank ", peer.rank, " of ", peer.world_size, ','});
    if (peer.version != wire_version || peer.block_bytes != local::hello{}.block_bytes) {
      return detail::concat({who, " was built with another version of hfcomm"});
    }
    if (peer.world_size != world_size()) {
      return detail::concat(
          {who, " disagrees about the size of the job: rank ", leader_, " was started as one of ", world_size()});
    }
    if (peer.rank < 0 || peer.rank >= world_size()) {
      return detail::concat({who, " claims a rank that the job does not have"});
    }
    if (has(peer.rank)) {
      return detail::concat({who, " claims a rank that another process has taken"});
    }
    return {};
  }

  [[gnu::cold]] void require_all_there() {
    for (int rank = 0; rank < world_size(); ++rank) {
      joined_rank& member = member_of(rank);
      if (!member.has_come) {
        continue;
      }
      if (const auto message = member.connection.receive(std::chrono::milliseconds(0));
          message && message->bytes.empty()) {
        member.has_come = false;
        --count_;
        fail_without(rank);
      }
    }
  }

  std::optional<local_listener> listener_;
  int leader_;
  deadline give_up_;
  std::vector<joined_rank> members_;            // by rank; the leader does not come
  std::size_t count_ = 1;                       // of the ranks that are there
  std::vector<local_connection> unidentified_;  // connected, but not introduced yet
};

}  // namespace hfcomm::rendezvous
