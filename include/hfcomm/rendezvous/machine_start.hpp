// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/hierarchical/machine_agent.hpp>
#include <hfcomm/engine/links/link.hpp>
#include <hfcomm/machine/random_id.hpp>
#include <hfcomm/machine/unix_socket.hpp>
#include <hfcomm/rendezvous/address_exchange.hpp>
#include <hfcomm/rendezvous/connected_memory.hpp>
#include <hfcomm/rendezvous/credentials.hpp>
#include <hfcomm/rendezvous/handshake.hpp>
#include <hfcomm/rendezvous/job_plan.hpp>
#include <hfcomm/rendezvous/machine_leader.hpp>
#include <hfcomm/rendezvous/machine_memory.hpp>
#include <hfcomm/rendezvous/side_connection.hpp>
#include <hfcomm/rendezvous/side_control.hpp>

namespace hfcomm::rendezvous {

/// A process's part of the start of a job that may have several machines.
struct job_options {
  std::string local_key;  ///< Equal on the ranks of one machine, different for other jobs.
  std::string job_key;    ///< Equal on all ranks.
  int rank = 0;
  int world_size = 1;
  std::uint64_t epoch = 0;
  std::chrono::nanoseconds timeout{};
  std::chrono::milliseconds silence_limit = std::chrono::seconds(5);
  bool has_several_machines = false;  ///< True where the launcher says so; false where it does not know.
  std::unique_ptr<address_exchange> exchange;
  std::vector<std::uint16_t> root_ports;                      ///< Empty where the exchange tells the port.
  std::optional<credentials> proof;                           ///< Needed where there are several machines.
  std::function<std::unique_ptr<engines::link>()> make_link;  ///< Called where there are several machines.
  std::function<std::vector<std::string>()> own_addresses;    ///< By which other machines reach this one.
};

/// The start of one machine, as its leader sees it: the parts that are the same for the root and for all others.
class machine_start {
 public:
  static constexpr std::chrono::milliseconds slice{20};
  /// The time for which a leader waits for ranks of its own machine before it looks for others.
  static constexpr std::chrono::milliseconds local_grace{200};
  static constexpr const char* secret_hint =
      "; ranks of several machines need the job's secret to meet, and neither HFCOMM_SECRET_FILE nor HFCOMM_SECRET is "
      "set";

  machine_start(job_options from, local_listener listener)
      : options(std::move(from)),
        ranks(std::move(listener), options.rank, options.world_size, deadline::in(options.timeout)) {}

  [[nodiscard]] deadline give_up() const { return ranks.give_up(); }

  [[nodiscard]] admission admission_of(credentials proof, const std::string& nonce) const {
    return {std::move(proof), detail::concat({options.job_key, '/', nonce}), options.epoch, options.world_size,
            options.rank};
  }

  /// Throws the error that another leader has sent, if the message is one.
  static void throw_if_error(const side_message& message) {
    local::throw_if_error(std::byte{message.kind},
                          {reinterpret_cast<const char*>(message.bytes.data()), message.bytes.size()});
  }

  /// Describes this machine, with the ranks that have come.
  [[nodiscard]] machine_part describe() const {
    machine_part part;
    part.leader = ranks.leader();
    std::array<char, 256> host{};
    ::gethostname(host.data(), host.size() - 1);
    part.host = host.data();
    for (int rank = 0; rank < options.world_size; ++rank) {
      if (ranks.has(rank)) {
        part.ranks.push_back(rank);
        part.pids.push_back(ranks.pid(rank));
      }
    }
    if (link) {
      part.link = link->name();
      part.link_address = link->address();
    }
    part.milliseconds_left = ranks.give_up().milliseconds_left();
    return part;
  }

  /// Makes this machine's memory, and hands it over.
  void prepare(const job_plan& plan) {
    self_ = plan.machine_of(options.world_size)[static_cast<std::size_t>(options.rank)];
    memory_ = make_connected_memory(plan, self_, options.world_size);
    if (memory_.bell != nullptr) {
      agent_socket_ = socket_name(options.local_key + random_id());
      std::vector<std::vector<std::byte>> addresses;
      addresses.reserve(plan.machines.size());
      for (const auto& part : plan.machines) {
        addresses.push_back(part.link_address);
      }
      link->open(self_, std::move(addresses));
    }
    ranks.hand_over(memory_, agent_socket_, plan.machines[static_cast<std::size_t>(self_)].ranks.front());
  }

  /// Starts the agent, and lets this machine's ranks go.
  membership finish(const job_plan& plan) {
    std::shared_ptr<engines::machine_agent> agent;
    if (memory_.bell != nullptr) {
      agent = start_agent(plan);
    }
    membership made = enter_machine(memory_, agent, options.rank, options.rank, options.world_size);
    if (agent) {
      agent->start();
    }
    made.connection = std::move(agent);
    ranks.let_go();
    return made;
  }

  /// Sends an error to the other leaders, as far as they are connected, and to this machine's ranks.
  void tell(std::byte kind, const std::string& text) noexcept {
    try {
      ranks.tell(kind, text);
      for (auto& connection : connections) {
        if (connection) {
          connection->send(std::to_integer<std::uint8_t>(kind), std::as_bytes(std::span(text)));
        }
      }
      close_when_read(connections, std::chrono::milliseconds(500));
    } catch (...) {
      // They notice that this machine goes away.
    }
  }

  // NOLINTBEGIN(*non-private-member*): the state that the root's side and the others' share
  job_options options;
  machine_ranks ranks;
  local::start_warning warning;
  bool looks_up = false;  ///< Whether this leader's part in the exchange is to look the root up.
  std::unique_ptr<engines::link> link;
  /// The root's to the other leaders, else the one to the root.
  std::vector<std::optional<side_connection>> connections;
  // NOLINTEND(*non-private-member*)

 private:
  std::shared_ptr<engines::machine_agent> start_agent(const job_plan& plan) {
    std::vector<std::optional<side_connection>> by_machine(plan.machines.size());
    for (std::size_t index = 0; index < connections.size(); ++index) {
      by_machine[self_ == 0 ? index + 1 : 0] = std::move(connections[index]);
    }
    connections.clear();
    return make_agent(plan, memory_, options.world_size,
                      {.self = self_,
                       .link = std::move(link),
                       .control = std::make_unique<side_control>(std::move(by_machine)),
                       .socket = agent_socket_,
                       .silence_limit = options.silence_limit});
  }

  int self_ = 0;
  machine_memory memory_;
  std::string agent_socket_;
};

}  // namespace hfcomm::rendezvous
