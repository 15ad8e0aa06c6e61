// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <hfcomm/core/error.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/machine/unix_socket.hpp>
#include <hfcomm/rendezvous/handshake.hpp>
#include <hfcomm/rendezvous/machine_leader.hpp>
#include <hfcomm/rendezvous/machine_member.hpp>
#include <hfcomm/rendezvous/machine_memory.hpp>

/// The start of a job whose processes are on one machine.
///
/// Rank 0 listens on a socket named after the job's key. Every other rank connects and introduces itself. When all have
/// come, rank 0 stops listening and hands each of them the roster and the world group's memory. Each enters the roster
/// and says so. When all have, rank 0 lets them go and the sockets close. No file, port or connection is left.
namespace hfcomm::rendezvous {

namespace local {

inline constexpr std::chrono::milliseconds slice{20};

/// Introduces this rank to the leader. Returns false where the other end closes the connection without an answer: it is
/// at the end of an earlier job of this name, or of its life, and the leader is yet to come. Throws the error that the
/// leader sends. `leader` is its rank, where that is known.
inline bool introduce(local_connection& connection, const hello& introduction, deadline give_up,
                      std::optional<int> leader) {
  connection.send(std::as_bytes(std::span(&introduction, 1)));
  while (!give_up.passed()) {
    if (const auto answer = connection.receive(slice)) {
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

/// Takes all ranks in. `hint` ends the error about those that did not come.
[[gnu::cold]] inline void admit_all(machine_ranks& ranks, const std::string& hint) {
  start_warning warning;
  for (auto absent = ranks.absent(); !absent.empty(); absent = ranks.absent()) {
    warning.check([&] { return engines::list_ranks(absent); });
    if (ranks.give_up().passed()) {
      detail::throw_error<timeout_error>({"timed out: the job did not start in time: ", engines::list_ranks(absent),
                                          " did not come; were all ranks started, with the same job key?", hint},
                                         absent);
    }
    ranks.admit(slice);
  }
}

/// Makes the roster and the world group's memory, and sends both to all ranks.
[[gnu::cold]] inline membership hand_over_memory(machine_ranks& ranks) {
  constexpr const char* what = "rank 0 cannot make the job's memory: ";
  try {
    const auto memory = machine_memory::make(ranks.world_size());
    ranks.hand_over(memory, {}, 0);
    return enter_machine(memory, nullptr, 0, 0, ranks.world_size());
  } catch (const error& problem) {
    detail::throw_error<engine_error>({what, problem.detail()});
  } catch (const std::exception& problem) {
    detail::throw_error<engine_error>({what, problem.what()});
  }
}

/// Rank 0's side of the start. Every error goes to all ranks that have come, and is thrown.
[[gnu::cold]] inline membership lead(machine_ranks ranks, const std::string& hint) {
  const auto start = [&] {
    admit_all(ranks, hint);
    ranks.close();
    membership made = hand_over_memory(ranks);
    while (!ranks.all_are_ready(slice)) {
      if (ranks.give_up().passed()) {
        const std::vector missing{ranks.unready()};
        detail::throw_error<timeout_error>(
            {"timed out: the job did not start in time: ", engines::list_ranks(missing), " came but did not sign in"},
            missing);
      }
    }
    ranks.let_go();
    return made;
  };
  return start_or_tell(start, [&](std::byte kind, const std::string& text) { ranks.tell(kind, text); });
}

}  // namespace local

/// Joins the job called `key` on this machine as `rank`, and waits until all of its ranks have come.
/// Throws timeout_error with the ranks that did not come, and usage_error or engine_error where the ranks do not fit
/// together, on every rank that has come. `hint` ends the text of that timeout_error.
[[gnu::cold]] inline membership join_local_job(const std::string& key, int rank, int world_size,
                                               std::chrono::nanoseconds timeout, const std::string& hint = {}) {
  const auto give_up = deadline::in(timeout);
  if (rank == 0) {
    return local::lead({local_listener(socket_name(key)), 0, world_size, give_up}, hint);
  }
  return machine_member(local::connect_to_rank_0(key, local::hello::of(rank, world_size, give_up), give_up, hint),
                        {.rank = rank, .world_size = world_size, .give_up = give_up, .leader = 0})
      .run();
}

}  // namespace hfcomm::rendezvous
