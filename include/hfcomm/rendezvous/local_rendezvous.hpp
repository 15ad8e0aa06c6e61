// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include <hfcomm/core/error.hpp>
#include <hfcomm/machine/unix_socket.hpp>
#include <hfcomm/rendezvous/coordinator.hpp>
#include <hfcomm/rendezvous/handshake.hpp>
#include <hfcomm/rendezvous/machine_member.hpp>

/// The start of a job whose processes are on one machine.
///
/// Rank 0 listens on a socket named after the job's key. Every other rank connects and introduces itself. When all have
/// come, rank 0 stops listening and hands each of them the roster and the world group's memory. Each enters the roster
/// and says so. When all have, rank 0 lets them go and the sockets close. No file, port or connection is left.
namespace hfcomm::rendezvous {

namespace local {

/// Introduces this rank to the leader. Returns false where the other end closes the connection without an answer: it is
/// at the end of an earlier job of this name, or of its life, and the leader is yet to come. Throws the error that the
/// leader sends. `leader` is its rank, where that is known.
inline bool introduce(local_connection& connection, const hello& introduction, deadline give_up,
                      std::optional<int> leader) {
  connection.send(std::as_bytes(std::span(&introduction, 1)));
  while (!give_up.passed()) {
    if (const auto answer = connection.receive(std::chrono::milliseconds(20))) {
      if (answer->bytes.empty()) {
        return false;
      }
      throw_if_refused(*answer, leader);
      return true;
    }
  }
  throw_silent(leader);
}

/// Connects to rank 0, however late it starts, and introduces this rank.
[[gnu::cold]] inline local_connection connect_to_rank_0(const std::string& key, const hello& introduction,
                                                        deadline give_up, const std::string& hint) {
  const std::string name = socket_name(key);
  start_warning warning;
  for (auto pause = std::chrono::microseconds(500);; pause = std::min(pause * 2, std::chrono::microseconds(20'000))) {
    auto connection = connect_to(name);
    if (connection && introduce(*connection, introduction, give_up, 0)) {
      return std::move(*connection);
    }
    warning.check([] { return std::string("rank 0"); });
    if (give_up.passed()) {
      detail::throw_error<timeout_error>(
          {"timed out: the job did not start in time: rank 0 did not come (socket @", name,
           "); was it started, with the same job key and, if in a container, in the same network "
           "and user namespace?",
           hint},
          std::vector<int>{0});
    }
    std::this_thread::sleep_for(pause);
  }
}

/// The side of every rank but rank 0 (see coordinator).
inline membership join(const std::string& key, int rank, int world_size, deadline give_up, const std::string& hint) {
  return machine_member(connect_to_rank_0(key, hello::of(rank, world_size, give_up), give_up, hint),
                        {.rank = rank, .world_size = world_size, .give_up = give_up, .leader = 0})
      .run();
}

}  // namespace local

/// Joins the job called `key` on this machine as `rank`, and waits until all of its ranks have come.
/// Throws timeout_error with the ranks that did not come, and usage_error or engine_error where the ranks do not fit
/// together, on every rank that has come. `hint` ends the text of that timeout_error.
[[gnu::cold]] inline membership join_local_job(const std::string& key, int rank, int world_size,
                                               std::chrono::nanoseconds timeout, const std::string& hint = {}) {
  const auto give_up = deadline::in(timeout);
  return rank == 0 ? local::coordinator(key, world_size, give_up, hint).run()
                   : local::join(key, rank, world_size, give_up, hint);
}

}  // namespace hfcomm::rendezvous
