// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include <unistd.h>

#include <hfcomm/rendezvous/coordinator.hpp>
#include <hfcomm/rendezvous/handshake.hpp>

/// The start of a job whose processes are on one machine.
///
/// Rank 0 listens on a socket named after the job's key. Every other rank connects and introduces itself. When all have
/// come, rank 0 stops listening and hands each of them the roster and the world group's memory. Each enters the roster
/// and says so. When all have, rank 0 lets them go and the sockets close. No file, port or connection is left.
namespace hfcomm::rendezvous {

namespace local {

/// Introduces this rank. Returns false where the other end closes the connection without an answer: it is at the end of
/// an earlier job of this name, or of its life, and rank 0 is yet to come. Throws the error that rank 0 sends.
inline bool introduce(local_connection& connection, const hello& introduction, deadline give_up) {
  connection.send(std::as_bytes(std::span(&introduction, 1)));
  while (!give_up.passed()) {
    if (const auto answer = connection.receive(std::chrono::milliseconds(20))) {
      if (answer->bytes.empty()) {
        return false;
      }
      throw_if_refused(*answer);
      return true;
    }
  }
  throw timeout_error(error_context{}, "timed out: the job did not start in time: rank 0 is there, but does not answer",
                      {0});
}

/// Connects to rank 0, however late it starts, and introduces this rank.
inline local_connection connect_to_rank_0(const std::string& key, const hello& introduction, deadline give_up) {
  const std::string name = socket_name(key);
  start_warning warning;
  for (auto pause = std::chrono::microseconds(500);; pause = std::min(pause * 2, std::chrono::microseconds(20'000))) {
    auto connection = connect_to(name);
    if (connection && introduce(*connection, introduction, give_up)) {
      return std::move(*connection);
    }
    warning.check([] { return std::string("rank 0"); });
    if (give_up.passed()) {
      throw timeout_error(error_context{},
                          "timed out: the job did not start in time: rank 0 did not come (socket @" + name +
                              "); was it started, with the same job key and, if in a container, in the same network "
                              "and user namespace?",
                          {0});
    }
    std::this_thread::sleep_for(pause);
  }
}

/// Waits for the next packet of rank 0; throws the error that it sends.
inline packet receive_from_rank_0(local_connection& connection, deadline give_up) {
  while (true) {
    if (auto answer = connection.receive(std::chrono::milliseconds(20))) {
      throw_if_refused(*answer);
      return std::move(*answer);
    }
    // Rank 0 sends the missing ranks at its own deadline. This rank's deadline is for a rank 0 that does not.
    if (give_up.passed_by(std::chrono::seconds(5))) {
      throw timeout_error(error_context{},
                          "timed out: the job did not start in time: rank 0 is there, but does not answer", {0});
    }
  }
}

/// Maps the memory that rank 0 has handed over, and enters the roster.
inline membership take_memory(packet& answer, int rank, int world_size) {
  if (answer.bytes.front() != welcome || answer.fds.size() != 2 || !answer.fds[0] || !answer.fds[1]) {
    throw engine_error(
        error_context{},
        "it did not come; this process may not open another file (descriptors in use, limit: ulimit -n)");
  }
  auto roster_segment = shared_segment::adopt(std::move(answer.fds[0]), roster::bytes_for(world_size));
  auto world =
      shared_segment::adopt(std::move(answer.fds[1]), engines::layout::dimensions::for_ranks(world_size).total_bytes());
  return make_membership(std::move(roster_segment), std::move(world), rank, world_size);
}

/// The side of every rank but rank 0 (see coordinator).
inline membership join(const std::string& key, int rank, int world_size, deadline give_up) {
  hello introduction;
  introduction.rank = rank;
  introduction.world_size = world_size;
  introduction.pid = static_cast<std::int32_t>(::getpid());
  introduction.milliseconds_left = give_up.milliseconds_left();
  local_connection connection = connect_to_rank_0(key, introduction, give_up);
  membership result = [&] {
    packet answer = receive_from_rank_0(connection, give_up);
    try {
      return take_memory(answer, rank, world_size);
    } catch (const error& problem) {
      const std::string text = "rank " + std::to_string(rank) + " cannot take the job's memory: " + problem.detail();
      send_text(connection, failed, text);
      throw engine_error(error_context{}, text);
    }
  }();
  connection.send({&ready, 1});
  if (receive_from_rank_0(connection, give_up).bytes.front() != go) {
    throw engine_error(error_context{}, "rank 0 did not start the job");
  }
  return result;
}

}  // namespace local

/// Joins the job called `key` on this machine as `rank`, and waits until all of its ranks have come.
/// Throws timeout_error with the ranks that did not come, and usage_error or engine_error where the ranks do not fit
/// together, on every rank that has come.
inline membership join_local_job(const std::string& key, int rank, int world_size, std::chrono::nanoseconds timeout) {
  const auto give_up = deadline::in(timeout);
  return rank == 0 ? local::coordinator(key, world_size, give_up).run() : local::join(key, rank, world_size, give_up);
}

}  // namespace hfcomm::rendezvous
