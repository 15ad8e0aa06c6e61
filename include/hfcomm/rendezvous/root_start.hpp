// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>

#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/machine/random_id.hpp>
#include <hfcomm/machine/unix_socket.hpp>
#include <hfcomm/rendezvous/address_exchange.hpp>
#include <hfcomm/rendezvous/credentials.hpp>
#include <hfcomm/rendezvous/job_plan.hpp>
#include <hfcomm/rendezvous/machine_start.hpp>
#include <hfcomm/rendezvous/side_connection.hpp>
#include <hfcomm/rendezvous/side_listener.hpp>

namespace hfcomm::rendezvous {

/// The start as the leader on the machine of rank 0, the root, takes part.
class root_start {
 public:
  explicit root_start(machine_start& mine) : mine_(mine) {}

  membership run() {
    const bool is_urgent = mine_.options.has_several_machines || mine_.options.exchange->needs_all_ranks();
    const auto opens_at = clock::now() + (is_urgent ? std::chrono::milliseconds(0) : machine_start::local_grace);
    if (mine_.options.has_several_machines) {
      static_cast<void>(require_credentials(mine_.options.proof));
    }
    while (!absent_ranks().empty() || (is_urgent && !listener_)) {
      if (!listener_ && clock::now() >= opens_at && mine_.options.proof) {
        open();
      }
      await_events();
      mine_.ranks.admit(std::chrono::milliseconds(0));
      if (listener_) {
        take_leaders();
      }
      mine_.warning.check([&] { return engines::list_ranks(absent_ranks()); });
      if (give_up_.passed() || mine_.give_up().passed()) {
        fail_for_absent(absent_ranks());
      }
    }
    if (mine_.options.exchange->needs_all_ranks()) {
      finish_exchange(*mine_.options.exchange, mine_.give_up(), "all ranks");
    }
    const job_plan plan = make_plan();
    listener_.reset();
    mine_.options.exchange.reset();
    for (auto& connection : mine_.connections) {
      connection->send(static_cast<std::uint8_t>(start_kind::plan), plan.encode());
    }
    mine_.prepare(plan);
    await_ready();
    for (auto& connection : mine_.connections) {
      connection->send(static_cast<std::uint8_t>(start_kind::go), {});
    }
    return mine_.finish(plan);
  }

 private:
  void open() {
    root_address address{.hosts = {}, .ports = mine_.options.root_ports, .nonce = {}};
    const bool is_published = address.ports.empty();
    if (is_published) {
      address.hosts = mine_.options.own_addresses();
      address.nonce = random_id();
      address.ports = {0};
    }
    listener_.emplace("", address.ports, mine_.admission_of(*mine_.options.proof, address.nonce));
    if (is_published) {
      address.ports = {listener_->port()};
      mine_.options.exchange->publish(address);
    }
  }

  [[noreturn]] void fail_for_absent(const std::vector<int>& absent) const {
    std::string text = "timed out: the job did not start in time: " + engines::list_ranks(absent) +
                       " did not come; were all ranks started, with the same job key?";
    if (listener_ && !listener_->describe_refused().empty()) {
      text += ' ' + listener_->describe_refused();
    }
    if (!listener_ && !mine_.options.proof) {
      text += machine_start::secret_hint;
    }
    throw timeout_error(error_context{}, text, absent);
  }

  void await_events() {
    std::vector<pollfd> events;
    if (listener_) {
      listener_->add_to(events);
    }
    for (const auto& connection : mine_.connections) {
      connection->add_to(events);
    }
    mine_.ranks.add_to(events);
    static_cast<void>(
        ::poll(events.data(), static_cast<nfds_t>(events.size()), static_cast<int>(machine_start::slice.count())));
  }

  void take_leaders() {
    static_cast<void>(mine_.options.exchange->is_done());
    listener_->progress();
    while (auto connection = listener_->take()) {
      mine_.connections.emplace_back(std::move(*connection));
      parts_.emplace_back();
    }
    receive_all();
  }

  /// Takes what the leaders have sent. Throws where one has gone.
  void receive_all() {
    for (std::size_t index = 0; index < mine_.connections.size(); ++index) {
      while (const auto message = mine_.connections[index]->receive()) {
        take_message(index, *message);
      }
      if (mine_.connections[index]->is_closed()) {
        throw engine_error(error_context{}, name_of(index) + " went away while the job was starting (" +
                                                mine_.connections[index]->close_reason() + ')');
      }
    }
  }

  [[nodiscard]] std::string name_of(std::size_t index) const {
    const auto& part = parts_[index];
    return part.ranks.empty() ? "a machine at " + mine_.connections[index]->peer_address()
                              : "the machine " + part.host + " of " + engines::list_ranks(part.ranks);
  }

  void take_message(std::size_t index, const side_message& message) {
    machine_start::throw_if_error(message);
    if (static_cast<start_kind>(message.kind) == start_kind::ready) {
      is_ready_[index] = true;
      return;
    }
    if (static_cast<start_kind>(message.kind) != start_kind::join) {
      return;
    }
    machine_part part;
    try {
      part = machine_part::decode(message.bytes, mine_.options.world_size);
    } catch (const decode_error& problem) {
      throw engine_error(error_context{}, name_of(index) + " has sent " + problem.detail());
    }
    if (part.milliseconds_left >= 0) {
      give_up_.at = std::min(give_up_.at, clock::now() + std::chrono::milliseconds(part.milliseconds_left));
    }
    parts_[index] = std::move(part);
    for (const int rank : parts_[index].ranks) {
      for (std::size_t other = 0; other < parts_.size(); ++other) {
        const auto& theirs = parts_[other].ranks;
        if (mine_.ranks.has(rank) || (other != index && std::binary_search(theirs.begin(), theirs.end(), rank))) {
          throw usage_error(error_context{}, "two processes claim rank " + std::to_string(rank) + ": one on " +
                                                 parts_[index].host + ", and one on " +
                                                 (mine_.ranks.has(rank) ? "rank 0's machine" : parts_[other].host));
        }
      }
    }
  }

  [[nodiscard]] std::vector<int> absent_ranks() const {
    std::vector<bool> there(static_cast<std::size_t>(mine_.options.world_size));
    for (const auto& part : parts_) {
      for (const int rank : part.ranks) {
        there[static_cast<std::size_t>(rank)] = true;
      }
    }
    std::vector<int> absent;
    for (int rank = 0; rank < mine_.options.world_size; ++rank) {
      if (!there[static_cast<std::size_t>(rank)] && !mine_.ranks.has(rank)) {
        absent.push_back(rank);
      }
    }
    return absent;
  }

  /// Sorts the machines, and the connections with them.
  job_plan make_plan() {
    if (!parts_.empty() && mine_.link == nullptr) {
      mine_.link = mine_.options.make_link();
    }
    if (parts_.empty()) {
      mine_.link.reset();
    }
    job_plan plan;
    plan.machines.push_back(mine_.ranks.describe(mine_.link ? std::string(mine_.link->name()) : std::string(),
                                                 mine_.link ? mine_.link->address() : std::vector<std::byte>()));
    std::vector<std::size_t> order(parts_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t left, std::size_t right) {
      return parts_[left].ranks.front() < parts_[right].ranks.front();
    });
    std::vector<std::optional<side_connection>> sorted;
    for (const std::size_t index : order) {
      if (parts_[index].link != plan.machines.front().link) {
        throw usage_error(error_context{}, "the machines use different links: " + plan.machines.front().host + " has " +
                                               plan.machines.front().link + ", " + parts_[index].host + " has " +
                                               parts_[index].link + "; set HFCOMM_LINK to the same on all");
      }
      plan.machines.push_back(parts_[index]);
      sorted.push_back(std::move(mine_.connections[index]));
    }
    mine_.connections = std::move(sorted);
    parts_.assign(plan.machines.begin() + 1, plan.machines.end());
    is_ready_.assign(mine_.connections.size(), false);
    return plan;
  }

  void await_ready() {
    while (!mine_.ranks.all_are_ready(std::chrono::milliseconds(0)) ||
           std::count(is_ready_.begin(), is_ready_.end(), false) != 0) {
      await_events();
      receive_all();
      if (mine_.give_up().passed()) {
        throw timeout_error(error_context{}, "timed out: the job did not start in time: not all ranks signed in", {});
      }
    }
  }

  machine_start& mine_;
  deadline give_up_;  // when the first of the other leaders gives up
  std::optional<side_listener> listener_;
  std::vector<machine_part> parts_;  // of the connections
  std::vector<bool> is_ready_;       // the same
};

}  // namespace hfcomm::rendezvous
