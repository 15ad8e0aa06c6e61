// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <poll.h>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/machine/tcp_socket.hpp>
#include <hfcomm/machine/unix_socket.hpp>
#include <hfcomm/rendezvous/address_exchange.hpp>
#include <hfcomm/rendezvous/credentials.hpp>
#include <hfcomm/rendezvous/job_plan.hpp>
#include <hfcomm/rendezvous/machine_start.hpp>
#include <hfcomm/rendezvous/side_connect.hpp>
#include <hfcomm/rendezvous/side_connection.hpp>

namespace hfcomm::rendezvous {

/// The start as the leader of another machine than the root's takes part.
class follower_start {
 public:
  explicit follower_start(machine_start& mine) : mine_(mine) {}

  /// Returns the membership; nullopt where rank 0 comes to this machine before a root was found.
  std::optional<membership> run() {
    auto root = find_root();
    return root ? std::optional(follow(std::move(*root))) : std::nullopt;
  }

 private:
  struct rank_0_has_come {};

  /// Returns a connection to the root; nullopt where rank 0 comes to this machine meanwhile.
  std::optional<side_connection> find_root() {
    try {
      if (!mine_.options.has_several_machines) {
        await_rank_0_here();
      }
      const auto proof = require_credentials(mine_.options.proof);
      if (!std::exchange(mine_.looks_up, true)) {
        mine_.options.exchange->look_up();
      }
      while (!mine_.options.exchange->is_done()) {
        await_others(machine_start::slice);
      }
      return connect(proof);
    } catch (const rank_0_has_come&) {
      return std::nullopt;
    }
  }

  /// Waits for rank 0, which may be about to come to this machine: then nothing is needed for others. Returns after a
  /// while where this rank could join it on another machine. Without a secret it cannot, so this throws usage_error
  /// where rank 0's address tells that it is there.
  void await_rank_0_here() {
    const auto patience = clock::now() + machine_start::local_grace;
    while (clock::now() < patience) {
      await_others(machine_start::slice);
    }
    if (mine_.options.proof) {
      return;
    }
    const auto& hosts = mine_.options.exchange->found().hosts;
    if (!hosts.empty() && std::none_of(hosts.begin(), hosts.end(), may_be_this_machine)) {
      static_cast<void>(require_credentials(
          std::nullopt,
          detail::concat({"rank 0 is at ", hosts.front(),
                          ", which is no address of this machine: this job has ranks on several machines"})));
    }
    while (true) {
      await_others(machine_start::slice);
    }
  }

  side_connection connect(const credentials& proof) {
    address_exchange& exchange = *mine_.options.exchange;
    while (true) {
      const root_address root = exchange.found();
      for (const std::string& host : root.hosts) {
        if (auto connection = try_host(host, root, proof)) {
          return std::move(*connection);
        }
      }
      exchange.refresh();
    }
  }

  /// Returns a connection to the root; nullopt where its host's turn is over, or another address has been published.
  std::optional<side_connection> try_host(const std::string& host, const root_address& root, const credentials& proof) {
    // A published address may be an earlier job's.
    const bool takes_turns = root.hosts.size() > 1 || !root.nonce.empty();
    const auto turn = takes_turns ? deadline::in(std::chrono::seconds(1)) : mine_.give_up();
    try {
      return connect_side(host, root.ports, mine_.admission_of(proof, root.nonce),
                          {std::min(turn.at, mine_.give_up().at)},
                          [this] { await_others(std::chrono::milliseconds(0)); });
    } catch (const timeout_error&) {
      if (mine_.give_up().passed()) {
        throw;
      }
    } catch (const usage_error&) {
      if (root.nonce.empty() || !is_replaced(root)) {
        throw;
      }
    }
    return std::nullopt;
  }

  /// Returns whether another root publishes its address within a while.
  bool is_replaced(const root_address& root) {
    address_exchange& exchange = *mine_.options.exchange;
    for (const auto patience = deadline::in(std::chrono::seconds(3)); !patience.passed();) {
      exchange.refresh();
      if (exchange.found().nonce != root.nonce) {
        return true;
      }
      await_others(machine_start::slice);
    }
    return false;
  }

  void await_others(std::chrono::milliseconds most) {
    mine_.ranks.admit(most);
    mine_.warning.check([] { return std::string("rank 0"); });
    if (mine_.ranks.has(0)) {
      throw rank_0_has_come();
    }
    if (mine_.give_up().passed()) {
      detail::throw_error<timeout_error>(
          {"timed out: the job did not start in time: rank 0 did not come to this machine",
           mine_.options.proof ? ", and its own was not found" : machine_start::secret_hint},
          std::vector<int>{0});
    }
  }

  membership follow(side_connection connection) {
    mine_.link = mine_.options.make_link();
    mine_.connections.emplace_back(std::move(connection));
    side_connection& root = *mine_.connections.front();
    send_join(root);
    plan_receiver plan;
    while (true) {
      while (const auto message = receive(root)) {
        if (plan.take(*message)) {
          return take_part(decode_plan(plan.bytes()), root);
        }
      }
      if (mine_.ranks.admit(std::chrono::milliseconds(1))) {
        send_join(root);
      }
      wait_for(root);
    }
  }

  membership take_part(const job_plan& plan, side_connection& root) {
    mine_.prepare(plan);
    while (!mine_.ranks.all_are_ready(machine_start::slice)) {
      static_cast<void>(receive(root));
    }
    root.send(static_cast<std::uint8_t>(start_kind::ready), {});
    while (true) {
      if (const auto message = receive(root); message && static_cast<start_kind>(message->kind) == start_kind::go) {
        return mine_.finish(plan);
      }
      wait_for(root);
    }
  }

  void send_join(side_connection& root) {
    root.send(static_cast<std::uint8_t>(start_kind::join), mine_.describe().encode());
  }

  /// Returns what the root has sent; nullopt where that is nothing. Throws the error that it has sent, and where it is
  /// gone or silent.
  std::optional<side_message> receive(side_connection& root) {
    if (auto message = root.receive()) {
      machine_start::throw_if_error(*message);
      return message;
    }
    if (root.is_closed()) {
      detail::throw_error<engine_error>(
          {"rank 0's machine went away while the job was starting (", root.close_reason(), ')'});
    }
    // The root sends the missing ranks at its own deadline. This one is for a root that does not.
    if (mine_.give_up().passed_by(std::chrono::seconds(5))) {
      detail::throw_error<timeout_error>(
          {"timed out: the job did not start in time: rank 0's machine is there, but does not answer"},
          std::vector<int>{0});
    }
    return std::nullopt;
  }

  static void wait_for(const side_connection& root) {
    detail::plain_list<pollfd> events;
    root.add_to(events);
    static_cast<void>(::poll(events.data(), static_cast<nfds_t>(events.size()), 5));
  }

  [[nodiscard]] job_plan decode_plan(std::span<const std::byte> bytes) const {
    try {
      auto plan = job_plan::decode(bytes, mine_.options.world_size);
      plan.require_follower(mine_.options.rank);
      return plan;
    } catch (const decode_error& problem) {
      detail::throw_error<engine_error>({"rank 0 has sent no plan of the job: ", problem.detail()});
    }
  }

  machine_start& mine_;
};

}  // namespace hfcomm::rendezvous
