// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/machine/agent_bell.hpp>
#include <hfcomm/machine/roster.hpp>
#include <hfcomm/machine/shared_segment.hpp>
#include <hfcomm/machine/unix_socket.hpp>
#include <hfcomm/rendezvous/handshake.hpp>
#include <hfcomm/rendezvous/machine_leader.hpp>
#include <hfcomm/rendezvous/machine_memory.hpp>

namespace hfcomm::rendezvous {

/// The start of every other process of a machine: its leader has the job's local socket. A job that may have several
/// machines derives its own.
class machine_member {
 public:
  struct parts {
    int rank = 0;
    int world_size = 1;
    deadline give_up;
    std::optional<int> leader;  ///< The leader's rank, where it is known.
  };

  /// `leader` is the connection to it, after `introduce`.
  machine_member(local_connection leader, parts from) : leader_(std::move(leader)), own_(from) {}
  machine_member(const machine_member&) = delete;
  machine_member& operator=(const machine_member&) = delete;
  virtual ~machine_member() = default;

  [[gnu::cold]] membership run() {
    packet answer = receive();
    membership made = [&] {
      try {
        return enter(answer);
      } catch (const error& problem) {
        const std::string text =
            detail::concat({"rank ", own_.rank, " cannot take the job's memory: ", problem.detail()});
        local::send_text(leader_, local::failed, text);
        detail::throw_error<engine_error>({text});
      }
    }();
    leader_.send({&local::ready, 1});
    if (receive().bytes.front() != local::go) {
      detail::throw_error<engine_error>({"the job was not started"});
    }
    return made;
  }

 protected:
  [[nodiscard]] const parts& own() const noexcept { return own_; }

  /// Does what there is to do beside waiting for the leader.
  virtual void attend() {}
  /// Publishes the address at which the leader, the root, listens; an empty text: it does not listen. For rank 0.
  virtual void publish(const std::string& /*text*/) { refuse_several_machines(); }
  /// Ends what `attend` does, before the leader's answer is used.
  virtual void finish_attending() {}
  /// Returns the connection to this machine's agent, which the leader has.
  virtual std::shared_ptr<engines::agent_port> connect_to_agent(std::shared_ptr<const agent_bell> /*bell*/,  // NOLINT
                                                                const std::string& /*socket*/) {
    refuse_several_machines();
  }

 private:
  [[noreturn, gnu::cold]] static void refuse_several_machines() {
    detail::throw_error<engine_error>(
        {"the leader of this machine takes part in a job of several machines, and this program does not include "
         "<hfcomm/machines.hpp>"});
  }

  [[gnu::cold]] packet receive() {
    while (true) {
      attend();
      if (auto answer = leader_.receive(std::chrono::milliseconds(20))) {
        local::throw_if_refused(*answer, own_.leader);
        if (answer->bytes.front() == local::root) {
          publish(local::text_of(*answer));
          continue;
        }
        finish_attending();
        return std::move(*answer);
      }
      // The leader sends the missing ranks at its own deadline. This one is for a leader that does not.
      if (own_.give_up.passed_by(std::chrono::seconds(5))) {
        local::throw_silent(own_.leader);
      }
    }
  }

  [[gnu::cold]] membership enter(packet& answer) {
    const auto content = machine_ranks::welcome_packet::decode(answer.bytes);
    std::size_t next = 0;
    const auto take_descriptor = [&] {
      if (!content || next == answer.fds.size() || !answer.fds[next]) {
        detail::throw_error<engine_error>(
            {"it did not come; this process may not open another file (descriptors in use, limit: ulimit -n)"});
      }
      return std::move(answer.fds[next++]);
    };
    const auto take = [&](std::size_t bytes) { return shared_segment::adopt(take_descriptor(), bytes); };
    const auto group = [&](int ranks, bool spans) {
      return (spans ? engines::layout::dimensions::for_machines(ranks) : engines::layout::dimensions::for_ranks(ranks))
          .total_bytes();
    };
    machine_memory memory;
    memory.roster = take(roster::bytes_for(own_.world_size));
    const bool has_agent = content->agent >= 0;
    memory.world = take(group(own_.world_size, has_agent));
    std::shared_ptr<engines::agent_port> port;
    if (has_agent) {
      auto board = take(sizeof(agent_board));
      memory.bell = std::make_shared<const agent_bell>(std::move(board), take_descriptor());
      port = connect_to_agent(memory.bell, content->socket);
      const roster table(memory.roster, own_.world_size, own_.rank);
      int local_ranks = 0;
      int machines = 0;
      bool is_first = true;
      for (int rank = 0; rank < own_.world_size; ++rank) {
        const bool is_here = table.machine(rank) == table.machine(own_.rank);
        local_ranks += is_here ? 1 : 0;
        is_first = is_first && (!is_here || rank >= own_.rank);
        machines = std::max(machines, table.machine(rank) + 1);
      }
      if (local_ranks > 1) {
        memory.local = take(group(local_ranks, false));
      }
      if (is_first) {
        memory.leaders = take(group(machines, true));
      }
    }
    return enter_machine(memory, std::move(port), content->agent, own_.rank, own_.world_size);
  }

  local_connection leader_;
  parts own_;
};

}  // namespace hfcomm::rendezvous
