// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/rendezvous/handshake.hpp>

namespace hfcomm::rendezvous::local {

/// Rank 0's side of the rendezvous. Accepts the other ranks, hands over the job's memory, and starts the job.
///
/// Every error is sent to all ranks that have come, and thrown.
class coordinator {
 public:
  coordinator(const std::string& key, int world_size, deadline give_up)
      : listener_(std::in_place, socket_name(key)),
        connections_(static_cast<std::size_t>(world_size)),
        world_size_(world_size),
        deadline_(give_up) {}

  membership run() {
    accept_all_ranks();
    // This process may start another job of this name soon. Its ranks must not find this listener.
    listener_.reset();
    membership result = hand_over_memory();
    wait_until_all_are_ready();
    for (auto& connection : connections_) {
      if (connection) {
        connection->send({&go, 1});
      }
    }
    return result;
  }

 private:
  static constexpr std::chrono::milliseconds slice{20};

  void accept_all_ranks() {
    start_warning warning;
    while (!absent_ranks().empty()) {
      accept_one();
      read_introductions();
      check_connections();
      warning.check([&] { return engines::list_ranks(absent_ranks()); });
      if (deadline_.passed()) {
        const auto absent = absent_ranks();
        fail_with_timeout(absent, "timed out: the job did not start in time: " + engines::list_ranks(absent) +
                                      " did not come; were all ranks started, with the same job key?");
      }
    }
  }

  void accept_one() {
    try {
      if (auto connection = listener_->accept(slice)) {
        unidentified_.push_back(std::move(*connection));
      }
    } catch (const engine_error& problem) {
      fail_all("rank 0 cannot take a connection: " + problem.detail());
    }
  }

  [[nodiscard]] std::vector<int> absent_ranks() const {
    std::vector<int> absent;
    for (std::size_t rank = 1; rank < connections_.size(); ++rank) {
      if (!connections_[rank]) {
        absent.push_back(static_cast<int>(rank));
      }
    }
    return absent;
  }

  /// Reads the introductions that have come. Does not wait: a process that connects and sends nothing delays nobody.
  void read_introductions() {
    for (std::size_t index = 0; index < unidentified_.size();) {
      auto message = unidentified_[index].receive(std::chrono::milliseconds(0));
      if (!message) {
        ++index;
        continue;
      }
      local_connection connection = std::move(unidentified_[index]);
      unidentified_.erase(unidentified_.begin() + static_cast<std::ptrdiff_t>(index));
      if (const auto introduction = hello::from(message->bytes)) {
        admit(*introduction, std::move(connection));
      }
    }
  }

  /// Takes a process as the rank that it claims. Where it does not fit the job, the job does not start.
  void admit(const hello& peer, local_connection connection) {
    if (const std::string problem = why_it_does_not_fit(peer); !problem.empty()) {
      send_text(connection, refused, problem);
      refuse_all(problem);
    }
    if (peer.milliseconds_left >= 0) {  // the first rank that gives up ends the start, and all learn who is missing
      const auto theirs = clock::now() + std::chrono::milliseconds(peer.milliseconds_left);
      deadline_.at = std::min(deadline_.at, theirs);
    }
    connection.send({&admitted, 1});
    connections_[static_cast<std::size_t>(peer.rank)].emplace(std::move(connection));
  }

  /// Returns an error text; empty where the process fits.
  [[nodiscard]] std::string why_it_does_not_fit(const hello& peer) const {
    const std::string who = "the process with pid " + std::to_string(peer.pid) + ", which calls itself rank " +
                            std::to_string(peer.rank) + " of " + std::to_string(peer.world_size) + ',';
    if (peer.version != wire_version || peer.block_bytes != hello{}.block_bytes) {
      return who + " was built with another version of hfcomm";
    }
    if (peer.world_size != world_size_) {
      return who + " disagrees about the size of the job: rank 0 was started as one of " + std::to_string(world_size_);
    }
    if (peer.rank < 1 || peer.rank >= world_size_) {
      return who + " claims a rank that the job does not have or that is taken by rank 0";
    }
    if (connections_[static_cast<std::size_t>(peer.rank)]) {
      return who + " claims a rank that another process has taken";
    }
    return {};
  }

  /// Fails where a rank that has come has gone again.
  void check_connections() {
    for (std::size_t rank = 1; rank < connections_.size(); ++rank) {
      if (connections_[rank]) {
        if (const auto message = connections_[rank]->receive(std::chrono::milliseconds(0));
            message && message->bytes.empty()) {
          fail_all("rank " + std::to_string(rank) + " went away while the job was starting");
        }
      }
    }
  }

  /// Makes the roster and the world group's memory, and sends both to all ranks.
  membership hand_over_memory() {
    try {
      return make_and_send_memory();
    } catch (const error& problem) {
      fail_all("rank 0 cannot make the job's memory: " + problem.detail());
    } catch (const std::exception& problem) {
      fail_all("rank 0 cannot make the job's memory: " + std::string(problem.what()));
    }
  }

  membership make_and_send_memory() {
    auto roster_segment = shared_segment::create(roster::bytes_for(world_size_));
    roster::create_in(*roster_segment, world_size_);
    const auto sizes = engines::layout::dimensions::for_ranks(world_size_);
    auto world = shared_segment::create(sizes.total_bytes(), sizes.heap_bytes());
    engines::layout::create_in(*world, sizes);
    const int fds[] = {roster_segment->fd(), world->fd()};
    for (auto& connection : connections_) {
      if (connection) {
        connection->send({&welcome, 1}, fds);
      }
    }
    return make_membership(std::move(roster_segment), std::move(world), 0, world_size_);
  }

  void wait_until_all_are_ready() {
    for (std::size_t rank = 1; rank < connections_.size(); ++rank) {
      std::optional<packet> answer;
      while (!(answer = connections_[rank]->receive(slice))) {
        if (deadline_.passed()) {
          fail_with_timeout({static_cast<int>(rank)}, "timed out: the job did not start in time: rank " +
                                                          std::to_string(rank) + " came but did not sign in");
        }
      }
      if (!answer->bytes.empty() && answer->bytes.front() == failed) {
        fail_all(text_of(*answer));
      }
      if (answer->bytes.empty() || answer->bytes.front() != ready) {
        fail_all("rank " + std::to_string(rank) + " went away while the job was starting");
      }
    }
  }

  void send_to_all(std::byte kind, const std::string& text) {
    for (auto& connection : connections_) {
      if (connection) {
        send_text(*connection, kind, text);
      }
    }
    for (auto& connection : unidentified_) {
      send_text(connection, kind, text);
    }
  }
  [[noreturn]] void refuse_all(const std::string& why) {
    send_to_all(refused, why);
    throw usage_error(error_context{}, why);
  }
  [[noreturn]] void fail_all(const std::string& why) {
    send_to_all(failed, why);
    throw engine_error(error_context{}, why);
  }
  [[noreturn]] void fail_with_timeout(const std::vector<int>& missing, const std::string& why) {
    send_to_all(timed_out, timed_out_text(missing, why));
    throw timeout_error(error_context{}, why, missing);
  }

  std::optional<local_listener> listener_;
  std::vector<std::optional<local_connection>> connections_;  // by rank; [0] stays empty
  std::vector<local_connection> unidentified_;                // connected, but not introduced yet
  int world_size_;
  deadline deadline_;
};

}  // namespace hfcomm::rendezvous::local
