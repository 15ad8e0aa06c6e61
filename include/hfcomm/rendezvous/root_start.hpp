// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/machine/random_id.hpp>
#include <hfcomm/machine/unix_socket.hpp>
#include <hfcomm/rendezvous/address_exchange.hpp>
#include <hfcomm/rendezvous/credentials.hpp>
#include <hfcomm/rendezvous/job_plan.hpp>
#include <hfcomm/rendezvous/machine_start.hpp>
#include <hfcomm/rendezvous/side_connection.hpp>
#include <hfcomm/rendezvous/side_control.hpp>
#include <hfcomm/rendezvous/side_listener.hpp>

namespace hfcomm::rendezvous {

/// The start as the leader on the machine of rank 0, the root, takes part.
class root_start {
 public:
  explicit root_start(machine_start& mine)
      : mine_(mine), claimed_by_(static_cast<std::size_t>(mine.options.world_size), nobody) {}

  membership run() {
    const bool is_urgent = mine_.options.has_several_machines || mine_.options.exchange->needs_all_ranks();
    const auto opens_at = clock::now() + (is_urgent ? std::chrono::milliseconds(0) : machine_start::local_grace);
    if (mine_.options.has_several_machines) {
      static_cast<void>(require_credentials(mine_.options.proof));
    }
    const bool can_listen = mine_.options.proof.has_value();
    while (!all_have_come() || (is_urgent && can_listen && !listener_)) {
      if (!listener_ && clock::now() >= opens_at && can_listen) {
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
      if (!listener_) {
        tell_exchange(std::nullopt);
      }
      finish_exchange(*mine_.options.exchange, mine_.give_up(), "all ranks");
    }
    const job_plan plan = make_plan();
    listener_.reset();
    mine_.options.exchange.reset();
    plan_ = plan.encode();
    if (plan_.size() > side_message::most_bytes) {
      detail::throw_error<engine_error>(
          {"the plan of the job has ", plan_.size(), " bytes; at most 16 MiB are allowed"});
    }
    plan_sent_.assign(mine_.connections.size(), 0);
    for (std::size_t index = 0; index < mine_.connections.size(); ++index) {
      send_plan(index);
    }
    mine_.prepare(plan);
    await_ready();
    send_to_all(start_kind::go, {});
    return mine_.finish(plan);
  }

 private:
  static constexpr std::size_t nobody = SIZE_MAX;

  void open() {
    root_address address{.hosts = {}, .ports = mine_.options.root_ports, .nonce = {}};
    const bool is_published = address.ports.empty();
    if (is_published) {
      address.hosts = published_addresses();
      address.nonce = random_id();
      address.ports = {0};
    }
    listener_.emplace(address.ports, mine_.admission_of(*mine_.options.proof, address.nonce));
    if (is_published) {
      address.ports = {listener_->port()};
      tell_exchange(address);
    }
  }

  /// Returns the addresses of this machine, as many as can be published. Throws usage_error where there are none.
  [[nodiscard]] std::vector<std::string> published_addresses() const {
    auto hosts = mine_.options.own_addresses();
    if (hosts.empty()) {
      detail::throw_error<usage_error>(
          {"rank 0's machine has no address by which others could reach it; set HFCOMM_INTERFACE to one "
           "of its network interfaces, or HFCOMM_ADDRESS"});
    }
    hosts.resize(std::min(hosts.size(), most_published_hosts));
    return hosts;
  }

  /// Publishes the address at which this process listens. Without one, it only attends, as all other ranks here do.
  void tell_exchange(const std::optional<root_address>& address) {
    auto& exchange = *mine_.options.exchange;
    if (mine_.options.rank == 0 || !exchange.needs_all_ranks()) {
      address ? exchange.publish(*address) : exchange.attend();
      return;
    }
    mine_.ranks.send_root(address ? to_text(*address) : std::string());
    if (!std::exchange(mine_.looks_up, true)) {
      exchange.attend();
    }
  }

  [[noreturn]] void fail_for_absent(const std::vector<int>& absent) const {
    std::string text = detail::concat(
        {"timed out: the job did not start in time: ",
         absent.empty() ? detail::concat({silent_machines(), " connected and named no ranks; is it of this job?"})
                        : detail::concat({engines::list_ranks(absent),
                                          " did not come; were all ranks started, with the same job key?"})});
    if (listener_ && !listener_->describe_refused().empty()) {
      detail::append(text, {' ', listener_->describe_refused()});
    }
    if (!listener_ && !mine_.options.proof) {
      text += machine_start::secret_hint;
    }
    detail::throw_error<timeout_error>({text}, absent);
  }

  void await_events() {
    detail::plain_list<pollfd> events;
    if (listener_) {
      listener_->add_to(events);
    }
    events.push_back({events_.descriptor(), POLLIN, 0});
    mine_.ranks.add_to(events);
    static_cast<void>(
        ::poll(events.data(), static_cast<nfds_t>(events.size()), static_cast<int>(machine_start::slice.count())));
  }

  void take_leaders() {
    static_cast<void>(mine_.options.exchange->is_done());
    listener_->progress();
    while (auto connection = listener_->take()) {
      events_.add(mine_.connections.size(), *connection);
      mine_.connections.emplace_back(std::move(*connection));
      parts_.emplace_back();
    }
    receive_all();
  }

  void send_to_all(start_kind kind, std::span<const std::byte> bytes) {
    for (std::size_t index = 0; index < mine_.connections.size(); ++index) {
      mine_.connections[index]->send(static_cast<std::uint8_t>(kind), bytes);
      events_.update(index, *mine_.connections[index]);
    }
  }

  /// Sends a leader as much of the plan as the system takes at once. A plan is long where there are many machines: the
  /// root never holds it once for each.
  void send_plan(std::size_t index) {
    constexpr std::size_t part_bytes = std::size_t{64} << 10;
    side_connection& connection = *mine_.connections[index];
    std::size_t& sent = plan_sent_[index];
    while (sent < plan_.size() && !connection.wants_write() && !connection.is_closed()) {
      const auto part = std::span(plan_).subspan(sent, std::min(part_bytes, plan_.size() - sent));
      sent += part.size();
      const auto kind = sent == plan_.size() ? start_kind::plan : start_kind::plan_part;
      connection.send(static_cast<std::uint8_t>(kind), part);
    }
    events_.update(index, connection);
  }

  /// Takes what the leaders have sent. Throws where one has gone.
  void receive_all() {
    while (const auto index = events_.current()) {
      side_connection& connection = *mine_.connections[*index];
      while (const auto message = connection.receive()) {
        take_message(*index, *message);
      }
      if (connection.is_closed()) {
        detail::throw_error<engine_error>(
            {name_of(*index), " went away while the job was starting (", connection.close_reason(), ')'});
      }
      if (!plan_sent_.empty()) {
        send_plan(*index);
      }
      events_.update(*index, connection);
      events_.pop();
    }
  }

  [[nodiscard]] std::string name_of(std::size_t index) const {
    const auto& part = parts_[index];
    return part.ranks.empty() ? detail::concat({"a machine at ", mine_.connections[index]->peer_address()})
                              : detail::concat({"the machine ", part.host, " of ", engines::list_ranks(part.ranks)});
  }

  void take_message(std::size_t index, const side_message& message) {
    machine_start::throw_if_error(message);
    if (static_cast<start_kind>(message.kind) == start_kind::ready) {
      if (index >= is_ready_.size()) {
        detail::throw_error<engine_error>({name_of(index), " is ready before it has the plan of the job"});
      }
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
      detail::throw_error<engine_error>({name_of(index), " has sent ", problem.detail()});
    }
    if (part.milliseconds_left >= 0) {
      give_up_.at = std::min(give_up_.at, clock::now() + std::chrono::milliseconds(part.milliseconds_left));
    }
    parts_[index] = std::move(part);
    for (const int rank : parts_[index].ranks) {
      claim(rank, index);
    }
  }

  void claim(int rank, std::size_t index) {
    std::size_t& owner = claimed_by_[static_cast<std::size_t>(rank)];
    if (mine_.ranks.has(rank) || (owner != nobody && owner != index)) {
      detail::throw_error<usage_error>({"two processes claim rank ", rank, ": one on ", parts_[index].host,
                                        ", and one on ",
                                        mine_.ranks.has(rank) ? "rank 0's machine" : parts_[owner].host});
    }
    claimed_ += owner == nobody ? 1 : 0;
    owner = index;
  }

  /// Counts first: to look at each rank at each event of a large job would take long. A machine that has not named its
  /// ranks yet may claim one that another has claimed.
  [[nodiscard]] bool all_have_come() const {
    return mine_.ranks.count() + claimed_ >= claimed_by_.size() && absent_ranks().empty() && silent_machines().empty();
  }

  /// Returns the names of the machines that have connected, but have not named their ranks.
  [[nodiscard]] std::string silent_machines() const {
    std::string names;
    for (std::size_t index = 0; index < parts_.size(); ++index) {
      if (parts_[index].ranks.empty()) {
        detail::append(names, {names.empty() ? "" : ", ", name_of(index)});
      }
    }
    return names;
  }

  [[nodiscard]] std::vector<int> absent_ranks() const {
    std::vector<int> absent;
    for (int rank = 0; rank < mine_.options.world_size; ++rank) {
      if (claimed_by_[static_cast<std::size_t>(rank)] == nobody && !mine_.ranks.has(rank)) {
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
    plan.machines.push_back(mine_.describe());
    std::vector<std::size_t> order(parts_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t left, std::size_t right) {
      return parts_[left].ranks.front() < parts_[right].ranks.front();
    });
    std::vector<std::optional<side_connection>> sorted;
    for (const std::size_t index : order) {
      if (parts_[index].link != plan.machines.front().link) {
        detail::throw_error<usage_error>({"the machines use different links: ", plan.machines.front().host, " has ",
                                          plan.machines.front().link, ", ", parts_[index].host, " has ",
                                          parts_[index].link, "; set HFCOMM_LINK to the same on all"});
      }
      plan.machines.push_back(parts_[index]);
      sorted.push_back(std::move(mine_.connections[index]));
    }
    mine_.connections = std::move(sorted);
    events_ = side_events();
    for (std::size_t index = 0; index < mine_.connections.size(); ++index) {
      events_.add(index, *mine_.connections[index]);
    }
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
        detail::throw_error<timeout_error>({"timed out: the job did not start in time: ", unready_names(),
                                            " got the plan of the job, but did not sign in"},
                                           std::vector<int>{});
      }
    }
  }

  [[nodiscard]] std::string unready_names() const {
    const int rank = mine_.ranks.unready();
    std::string names = rank >= 0 ? engines::list_ranks({&rank, 1}) : "";
    for (std::size_t index = 0; index < is_ready_.size(); ++index) {
      if (!is_ready_[index]) {
        detail::append(names, {names.empty() ? "" : ", ", name_of(index)});
      }
    }
    return names;
  }

  machine_start& mine_;
  deadline give_up_;  // when the first of the other leaders gives up
  std::optional<side_listener> listener_;
  side_events events_;                   // of the connections
  std::vector<machine_part> parts_;      // the same
  std::vector<bool> is_ready_;           // the same
  std::vector<std::byte> plan_;          // encoded; empty while there is none
  std::vector<std::size_t> plan_sent_;   // by connection: bytes of it
  std::vector<std::size_t> claimed_by_;  // by rank: the connection of its machine, or nobody
  std::size_t claimed_ = 0;
};

}  // namespace hfcomm::rendezvous
