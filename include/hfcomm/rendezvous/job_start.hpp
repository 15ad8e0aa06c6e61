// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/hierarchical/agent_socket.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/machine/agent_bell.hpp>
#include <hfcomm/machine/unix_socket.hpp>
#include <hfcomm/rendezvous/address_exchange.hpp>
#include <hfcomm/rendezvous/follower_start.hpp>
#include <hfcomm/rendezvous/handshake.hpp>
#include <hfcomm/rendezvous/local_rendezvous.hpp>
#include <hfcomm/rendezvous/machine_member.hpp>
#include <hfcomm/rendezvous/machine_start.hpp>
#include <hfcomm/rendezvous/root_start.hpp>

namespace hfcomm::rendezvous {

/// Starts a job that may have several machines, as the leader of one of them: the first process of the machine that has
/// the job's local socket.
///
/// The leader on the machine of rank 0 is the root. It listens for the other leaders, unless all ranks come to its own
/// machine soon. Each of them tells which ranks have come to its machine. When the root knows all, it sends each the
/// plan of the job. The leaders make their machines' memory and hand it over; when all ranks are ready, the root lets
/// all go. Its connections stay, for the agents.
inline membership lead_machine(job_options options, local_listener listener) {
  machine_start mine(std::move(options), std::move(listener));
  const auto start = [&] {
    follower_start others(mine);
    while (!mine.ranks.has(0)) {
      if (auto joined = others.run()) {
        return std::move(*joined);
      }
    }
    return root_start(mine).run();
  };
  return local::start_or_tell(start, [&](std::byte kind, const std::string& text) { mine.tell(kind, text); });
}

/// A machine_member of a job that may have several machines. Takes this rank's part in the exchange of the root's
/// address.
class connected_member final : public machine_member {
 public:
  connected_member(local_connection leader, parts from, address_exchange& exchange)
      : machine_member(std::move(leader), from), exchange_(exchange) {}

 private:
  void attend() override { attends_ = exchange_.needs_all_ranks() && !exchange_.is_done(); }
  void finish_attending() override {
    if (attends_) {
      finish_exchange(exchange_, own().give_up, "all ranks");
    }
  }
  void publish(const std::string& text) override {
    if (text.empty()) {
      exchange_.attend();
      return;
    }
    const auto address = parse_root_address(text);
    if (!address) {
      detail::throw_error<engine_error>({"the leader of this machine has sent no address: \"", text, '"'});
    }
    exchange_.publish(*address);
  }
  std::shared_ptr<engines::agent_port> connect_to_agent(std::shared_ptr<const agent_bell> bell,
                                                        const std::string& socket) override {
    return std::make_shared<engines::socket_agent_port>(std::move(bell), socket);
  }

  address_exchange& exchange_;
  bool attends_ = false;
};

/// Joins a job that may have several machines, and waits until all of its ranks have come. Throws as join_local_job
/// does.
inline membership join_job(job_options options) {
  const auto give_up = deadline::in(options.timeout);
  const std::string name = socket_name(options.local_key);
  const auto introduction = local::hello::of(options.rank, options.world_size, give_up);
  while (true) {
    if (auto listener = local_listener::try_at(name)) {
      return lead_machine(std::move(options), std::move(*listener));
    }
    auto connection = connect_to(name);
    if (connection && local::introduce(*connection, introduction, give_up, std::nullopt)) {
      if (options.rank != 0 || !options.exchange->needs_all_ranks()) {
        options.exchange->attend();
      }
      const machine_member::parts own{
          .rank = options.rank, .world_size = options.world_size, .give_up = give_up, .leader = std::nullopt};
      return connected_member(std::move(*connection), own, *options.exchange).run();
    }
    if (give_up.passed()) {
      detail::throw_error<timeout_error>(
          {"timed out: the job did not start in time: the process that has its local socket (@", name,
           ") does not answer"},
          std::vector<int>{});
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace hfcomm::rendezvous
