// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/hierarchical/agent_socket.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/machine/agent_bell.hpp>
#include <hfcomm/machine/unix_socket.hpp>
#include <hfcomm/rendezvous/address_exchange.hpp>
#include <hfcomm/rendezvous/machine_member.hpp>

namespace hfcomm::rendezvous {

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

}  // namespace hfcomm::rendezvous
