// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>

#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/engine/hierarchical/machine_agent.hpp>
#include <hfcomm/engine/links/link.hpp>
#include <hfcomm/machine/random_id.hpp>
#include <hfcomm/rendezvous/address_exchange.hpp>
#include <hfcomm/rendezvous/credentials.hpp>
#include <hfcomm/rendezvous/job_plan.hpp>
#include <hfcomm/rendezvous/local_rendezvous.hpp>
#include <hfcomm/rendezvous/machine_leader.hpp>
#include <hfcomm/rendezvous/machine_memory.hpp>
#include <hfcomm/rendezvous/side_connect.hpp>
#include <hfcomm/rendezvous/side_connection.hpp>
#include <hfcomm/rendezvous/side_control.hpp>
#include <hfcomm/rendezvous/side_listener.hpp>

namespace hfcomm::rendezvous {

/// What a process brings to the start of a job that may have several machines.
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

/// The start of a job that may have several machines, as the leader of one of them takes part: the first process of the
/// machine that has the job's local socket.
///
/// The leader on the machine of rank 0 is the root. It listens for the other leaders, unless all ranks come to its own
/// machine soon. Each of them tells which ranks have come to its machine. When the root knows all, it sends each the
/// plan of the job. The leaders make their machines' memory and hand it over; when all ranks are ready, the root lets
/// all go. Its connections stay, for the agents.
class job_start {
 public:
  job_start(job_options from, local_listener listener)
      : options_(std::move(from)),
        ranks_(std::move(listener), options_.rank, options_.world_size, deadline::in(options_.timeout)) {}

  membership run() {
    try {
      while (!ranks_.has(0)) {
        if (auto root = find_root()) {
          return follow(std::move(*root));
        }
      }
      return lead();
    } catch (const timeout_error& problem) {
      tell_all(start_kind::timed_out, local::timed_out, local::timed_out_text(problem.missing(), problem.detail()));
      throw;
    } catch (const usage_error& problem) {
      tell_all(start_kind::refused, local::refused, problem.detail());
      throw;
    } catch (const error& problem) {
      tell_all(start_kind::failed, local::failed, problem.detail());
      throw;
    }
  }

 private:
  static constexpr std::chrono::milliseconds slice{20};
  /// The time for which the root waits for all ranks on its own machine before it opens a port.
  static constexpr std::chrono::milliseconds local_grace{200};
  struct rank_0_has_come {};
  static constexpr const char* secret_hint =
      "; ranks of several machines need the job's secret to meet, and neither HFCOMM_SECRET_FILE nor HFCOMM_SECRET is "
      "set";

  [[nodiscard]] deadline give_up() const { return ranks_.give_up(); }

  // The leaders of other machines than the root's.

  /// Returns a connection to the root; nullopt where rank 0 comes to this machine meanwhile.
  std::optional<side_connection> find_root() {
    try {
      // Rank 0 may be about to come to this machine, and then nothing is needed for others.
      const auto patience = clock::now() + local_grace;
      while (!options_.has_several_machines && (!options_.proof || clock::now() < patience)) {
        await_others(slice);
      }
      const auto proof = require_credentials(options_.proof);
      if (!std::exchange(looks_up_, true)) {
        options_.exchange->look_up();
      }
      while (!options_.exchange->is_done()) {
        await_others(slice);
      }
      return connect(proof);
    } catch (const rank_0_has_come&) {
      return std::nullopt;
    }
  }

  std::optional<side_connection> connect(const credentials& proof) {
    const root_address& root = options_.exchange->found();
    // With several names, each gets its turn.
    const auto turn = root.hosts.size() > 1 ? deadline::in(std::chrono::seconds(1)) : give_up();
    while (true) {
      for (const std::string& host : root.hosts) {
        try {
          return connect_side(host, root.ports, admission_of(proof, root.nonce), {std::min(turn.at, give_up().at)},
                              [this] { await_others(std::chrono::milliseconds(0)); });
        } catch (const timeout_error&) {
          if (give_up().passed()) {
            throw;
          }
        }
      }
    }
  }

  void await_others(std::chrono::milliseconds most) {
    ranks_.admit(most);
    warning_.check([] { return std::string("rank 0"); });
    if (ranks_.has(0)) {
      throw rank_0_has_come();
    }
    if (give_up().passed()) {
      throw timeout_error(error_context{},
                          std::string("timed out: the job did not start in time: rank 0 did not come to this machine") +
                              (options_.proof ? ", and its own was not found" : secret_hint),
                          {0});
    }
  }

  [[nodiscard]] admission admission_of(credentials proof, const std::string& nonce) const {
    return {std::move(proof), options_.job_key + '/' + nonce, options_.epoch, options_.world_size, options_.rank};
  }

  membership follow(side_connection connection) {
    link_ = options_.make_link();
    connections_.emplace_back(std::move(connection));
    side_connection& root = *connections_.front();
    send_join(root);
    while (true) {
      if (const auto message = root.receive()) {
        if (static_cast<start_kind>(message->kind) == start_kind::plan) {
          return take_part(decode_plan(message->bytes), root);
        }
        throw_if_error(*message);
      }
      require_open(root);
      if (ranks_.admit(std::chrono::milliseconds(1))) {
        send_join(root);
      }
      wait_for(root);
    }
  }

  membership take_part(const job_plan& plan, side_connection& root) {
    prepare(plan);
    while (!ranks_.all_are_ready(slice)) {
      receive_error(root);
    }
    root.send(static_cast<std::uint8_t>(start_kind::ready), {});
    for (bool may_go = false; !may_go; wait_for(root)) {
      if (const auto message = root.receive()) {
        throw_if_error(*message);
        may_go = static_cast<start_kind>(message->kind) == start_kind::go;
        if (may_go) {
          break;
        }
      }
      require_open(root);
    }
    return finish(plan);
  }

  void send_join(side_connection& root) {
    root.send(static_cast<std::uint8_t>(start_kind::join),
              ranks_.describe(std::string(link_->name()), link_->address()).encode());
  }

  void receive_error(side_connection& root) {
    if (const auto message = root.receive()) {
      throw_if_error(*message);
    }
    require_open(root);
  }

  void require_open(const side_connection& root) {
    if (root.is_closed()) {
      throw engine_error(error_context{},
                         "rank 0's machine went away while the job was starting (" + root.close_reason() + ')');
    }
    // The root sends the missing ranks at its own deadline. This one is for a root that does not.
    if (give_up().passed_by(std::chrono::seconds(5))) {
      throw timeout_error(error_context{},
                          "timed out: the job did not start in time: rank 0's machine is there, but does not answer",
                          {0});
    }
  }

  static void wait_for(const side_connection& root) {
    std::vector<pollfd> events;
    root.add_to(events);
    static_cast<void>(::poll(events.data(), static_cast<nfds_t>(events.size()), 5));
  }

  [[noreturn]] static void throw_error(start_kind kind, const std::string& text) {
    if (kind == start_kind::refused) {
      throw usage_error(error_context{}, text);
    }
    if (kind == start_kind::timed_out) {
      local::throw_timed_out(text);
    }
    throw engine_error(error_context{}, text);
  }
  void throw_if_error(const side_message& message) {
    const auto kind = static_cast<start_kind>(message.kind);
    if (kind == start_kind::refused || kind == start_kind::failed || kind == start_kind::timed_out) {
      throw_error(kind, {reinterpret_cast<const char*>(message.bytes.data()), message.bytes.size()});
    }
  }

  [[nodiscard]] job_plan decode_plan(std::span<const std::byte> bytes) const {
    try {
      return job_plan::decode(bytes, options_.world_size);
    } catch (const decode_error& problem) {
      throw engine_error(error_context{}, "rank 0 has sent no plan of the job: " + problem.detail());
    }
  }

  // The root.

  membership lead() {
    const bool is_urgent = options_.has_several_machines || options_.exchange->needs_all_ranks();
    const auto opens_at = clock::now() + (is_urgent ? std::chrono::milliseconds(0) : local_grace);
    if (options_.has_several_machines) {
      static_cast<void>(require_credentials(options_.proof));
    }
    while (!absent_ranks().empty() || (is_urgent && !listener_)) {
      if (!listener_ && clock::now() >= opens_at && options_.proof) {
        open();
      }
      await_events();
      ranks_.admit(std::chrono::milliseconds(0));
      if (listener_) {
        take_leaders();
      }
      warning_.check([&] { return engines::list_ranks(absent_ranks()); });
      if (root_give_up_.passed() || give_up().passed()) {
        fail_for_absent(absent_ranks());
      }
    }
    if (options_.exchange->needs_all_ranks()) {
      finish_exchange(*options_.exchange, give_up(), "all ranks");
    }
    const job_plan plan = make_plan();
    listener_.reset();
    options_.exchange.reset();
    for (auto& connection : connections_) {
      connection->send(static_cast<std::uint8_t>(start_kind::plan), plan.encode());
    }
    prepare(plan);
    await_ready();
    for (auto& connection : connections_) {
      connection->send(static_cast<std::uint8_t>(start_kind::go), {});
    }
    return finish(plan);
  }

  void open() {
    root_address address{.hosts = {}, .ports = options_.root_ports, .nonce = {}};
    const bool is_published = address.ports.empty();
    if (is_published) {
      address.hosts = options_.own_addresses();
      address.nonce = random_id();
      address.ports = {0};
    }
    listener_.emplace("", address.ports, admission_of(*options_.proof, address.nonce));
    if (is_published) {
      address.ports = {listener_->port()};
      options_.exchange->publish(address);
    }
  }

  [[noreturn]] void fail_for_absent(const std::vector<int>& absent) const {
    std::string text = "timed out: the job did not start in time: " + engines::list_ranks(absent) +
                       " did not come; were all ranks started, with the same job key?";
    if (listener_ && !listener_->describe_refused().empty()) {
      text += ' ' + listener_->describe_refused();
    }
    if (!listener_ && !options_.proof) {
      text += secret_hint;
    }
    throw timeout_error(error_context{}, text, absent);
  }

  void await_events() {
    std::vector<pollfd> events;
    if (listener_) {
      listener_->add_to(events);
    }
    for (const auto& connection : connections_) {
      connection->add_to(events);
    }
    ranks_.add_to(events);
    static_cast<void>(::poll(events.data(), static_cast<nfds_t>(events.size()), static_cast<int>(slice.count())));
  }

  void take_leaders() {
    static_cast<void>(options_.exchange->is_done());
    listener_->progress();
    while (auto connection = listener_->take()) {
      connections_.emplace_back(std::move(*connection));
      parts_.emplace_back();
    }
    for (std::size_t index = 0; index < connections_.size(); ++index) {
      while (const auto message = connections_[index]->receive()) {
        take_message(index, *message);
      }
      if (connections_[index]->is_closed()) {
        throw engine_error(error_context{}, name_of(index) + " went away while the job was starting (" +
                                                connections_[index]->close_reason() + ')');
      }
    }
  }

  [[nodiscard]] std::string name_of(std::size_t index) const {
    const auto& part = parts_[index];
    return part.ranks.empty() ? "a machine at " + connections_[index]->peer_address()
                              : "the machine " + part.host + " of " + engines::list_ranks(part.ranks);
  }

  void take_message(std::size_t index, const side_message& message) {
    throw_if_error(message);
    if (static_cast<start_kind>(message.kind) == start_kind::ready) {
      is_ready_[index] = true;
      return;
    }
    if (static_cast<start_kind>(message.kind) != start_kind::join) {
      return;
    }
    machine_part part;
    try {
      part = machine_part::decode(message.bytes, options_.world_size);
    } catch (const decode_error& problem) {
      throw engine_error(error_context{}, name_of(index) + " has sent " + problem.detail());
    }
    if (part.milliseconds_left >= 0) {
      root_give_up_.at = std::min(root_give_up_.at, clock::now() + std::chrono::milliseconds(part.milliseconds_left));
    }
    parts_[index] = std::move(part);
    for (const int rank : parts_[index].ranks) {
      for (std::size_t other = 0; other < parts_.size(); ++other) {
        const auto& theirs = parts_[other].ranks;
        if (ranks_.has(rank) || (other != index && std::binary_search(theirs.begin(), theirs.end(), rank))) {
          throw usage_error(error_context{}, "two processes claim rank " + std::to_string(rank) + ": one on " +
                                                 parts_[index].host + ", and one on " +
                                                 (ranks_.has(rank) ? "rank 0's machine" : parts_[other].host));
        }
      }
    }
  }

  [[nodiscard]] std::vector<int> absent_ranks() const {
    std::vector<bool> there(static_cast<std::size_t>(options_.world_size));
    for (const auto& part : parts_) {
      for (const int rank : part.ranks) {
        there[static_cast<std::size_t>(rank)] = true;
      }
    }
    std::vector<int> absent;
    for (int rank = 0; rank < options_.world_size; ++rank) {
      if (!there[static_cast<std::size_t>(rank)] && !ranks_.has(rank)) {
        absent.push_back(rank);
      }
    }
    return absent;
  }

  /// Sorts the machines, and the connections with them.
  job_plan make_plan() {
    if (!parts_.empty() && link_ == nullptr) {
      link_ = options_.make_link();
    }
    if (parts_.empty()) {
      link_.reset();
    }
    job_plan plan;
    plan.machines.push_back(ranks_.describe(link_ ? std::string(link_->name()) : std::string(),
                                            link_ ? link_->address() : std::vector<std::byte>()));
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
      sorted.push_back(std::move(connections_[index]));
    }
    connections_ = std::move(sorted);
    parts_.assign(plan.machines.begin() + 1, plan.machines.end());
    is_ready_.assign(connections_.size(), false);
    return plan;
  }

  void await_ready() {
    while (!ranks_.all_are_ready(std::chrono::milliseconds(0)) ||
           std::count(is_ready_.begin(), is_ready_.end(), false) != 0) {
      await_events();
      for (std::size_t index = 0; index < connections_.size(); ++index) {
        while (const auto message = connections_[index]->receive()) {
          take_message(index, *message);
        }
        if (connections_[index]->is_closed()) {
          throw engine_error(error_context{}, name_of(index) + " went away while the job was starting (" +
                                                  connections_[index]->close_reason() + ')');
        }
      }
      if (give_up().passed()) {
        throw timeout_error(error_context{}, "timed out: the job did not start in time: not all ranks signed in", {});
      }
    }
  }

  // Both.

  /// Makes this machine's memory, and hands it over.
  void prepare(const job_plan& plan) {
    for (std::size_t machine = 0; machine < plan.machines.size(); ++machine) {
      const auto& mine = plan.machines[machine].ranks;
      if (std::binary_search(mine.begin(), mine.end(), options_.rank)) {
        self_ = static_cast<int>(machine);
      }
    }
    memory_ = machine_memory::make(plan, self_, options_.world_size);
    if (memory_.bell != nullptr) {
      agent_socket_ = socket_name(options_.local_key + random_id());
      std::vector<std::vector<std::byte>> addresses;
      addresses.reserve(plan.machines.size());
      for (const auto& part : plan.machines) {
        addresses.push_back(part.link_address);
      }
      link_->open(self_, std::move(addresses));
    }
    ranks_.hand_over(memory_, agent_socket_, plan.machines[static_cast<std::size_t>(self_)].ranks.front());
  }

  /// Starts the agent, and lets this machine's ranks go.
  membership finish(const job_plan& plan) {
    std::shared_ptr<engines::machine_agent> agent;
    std::shared_ptr<engines::agent_port> port;
    if (memory_.bell != nullptr) {
      agent = start_agent(plan);
      port = std::make_shared<engines::direct_agent_port>(agent);
    }
    membership made = enter_machine(memory_, std::move(port), options_.rank, options_.rank, options_.world_size);
    if (agent) {
      agent->start();
    }
    made.agent = std::move(agent);
    ranks_.let_go();
    return made;
  }

  std::shared_ptr<engines::machine_agent> start_agent(const job_plan& plan) {
    std::vector<std::optional<side_connection>> by_machine(plan.machines.size());
    for (std::size_t index = 0; index < connections_.size(); ++index) {
      by_machine[self_ == 0 ? index + 1 : 0] = std::move(connections_[index]);
    }
    connections_.clear();
    auto table = std::make_shared<roster>(memory_.roster, options_.world_size, options_.rank);
    auto agent = std::make_shared<engines::machine_agent>(
        engines::machine_agent::parts{.self = self_,
                                      .machine_of = plan.machine_of(options_.world_size),
                                      .leaders = plan.leaders(),
                                      .roster = std::move(table),
                                      .link = std::move(link_),
                                      .control = std::make_unique<side_control>(std::move(by_machine)),
                                      .bell = memory_.bell,
                                      .socket = agent_socket_,
                                      .silence_limit = options_.silence_limit});
    std::vector<int> all(static_cast<std::size_t>(options_.world_size));
    std::iota(all.begin(), all.end(), 0);
    agent->add_group(world_group_id, all, memory_.world);
    agent->add_group(leader_group_id, plan.first_ranks(), memory_.leaders);
    return agent;
  }

  void tell_all(start_kind kind, std::byte local_kind, const std::string& text) noexcept {
    try {
      ranks_.tell(local_kind, text);
      for (auto& connection : connections_) {
        if (connection && !connection->is_closed()) {
          connection->send(static_cast<std::uint8_t>(kind), std::as_bytes(std::span(text)));
          close_when_read(*connection, std::chrono::milliseconds(500));
        }
      }
    } catch (...) {
      // They notice that this machine goes away.
    }
  }

  job_options options_;
  machine_ranks ranks_;
  local::start_warning warning_;
  deadline root_give_up_;  // the root's: when the first leader gives up
  std::unique_ptr<engines::link> link_;
  bool looks_up_ = false;
  std::optional<side_listener> listener_;  // the root's
  std::vector<std::optional<side_connection>>
      connections_;                  // the root's to the other leaders, else the one to the root
  std::vector<machine_part> parts_;  // of the connections, at the root
  std::vector<bool> is_ready_;       // the same
  int self_ = 0;
  machine_memory memory_;
  std::string agent_socket_;
};

/// The start of every other process of a machine: its leader has the job's local socket.
class machine_member {
 public:
  machine_member(local_connection leader, const job_options& options, deadline give_up)
      : leader_(std::move(leader)), options_(options), give_up_(give_up) {}

  membership run() {
    packet answer = receive();
    membership made = [&] {
      try {
        return enter(answer);
      } catch (const error& problem) {
        const std::string text =
            "rank " + std::to_string(options_.rank) + " cannot take the job's memory: " + problem.detail();
        local::send_text(leader_, local::failed, text);
        throw engine_error(error_context{}, text);
      }
    }();
    leader_.send({&local::ready, 1});
    if (receive().bytes.front() != local::go) {
      throw engine_error(error_context{}, "the job was not started");
    }
    return made;
  }

 private:
  packet receive() {
    while (true) {
      const bool is_done = !options_.exchange->needs_all_ranks() || options_.exchange->is_done();
      if (auto answer = leader_.receive(std::chrono::milliseconds(20))) {
        local::throw_if_refused(*answer);
        if (!is_done) {
          finish_exchange(*options_.exchange, give_up_, "all ranks");
        }
        return std::move(*answer);
      }
      if (give_up_.passed_by(std::chrono::seconds(5))) {
        throw timeout_error(error_context{},
                            "timed out: the job did not start in time: the leader of this machine is there, but does "
                            "not answer",
                            {});
      }
    }
  }

  membership enter(packet& answer) {
    const auto content = machine_ranks::welcome_packet::decode(answer.bytes);
    if (!content || answer.fds.size() != content->descriptors() ||
        std::any_of(answer.fds.begin(), answer.fds.end(), [](const unique_fd& fd) { return !fd; })) {
      throw engine_error(
          error_context{},
          "it did not come; this process may not open another file (descriptors in use, limit: ulimit -n)");
    }
    const bool has_agent = content->agent >= 0;
    std::size_t next = 0;
    const auto take = [&](std::size_t bytes) { return shared_segment::adopt(std::move(answer.fds[next++]), bytes); };
    const auto group = [&](int ranks, bool spans) {
      return (spans ? engines::layout::dimensions::for_machines(ranks) : engines::layout::dimensions::for_ranks(ranks))
          .total_bytes();
    };
    machine_memory memory;
    memory.roster = take(roster::bytes_for(options_.world_size));
    memory.world = take(group(options_.world_size, has_agent));
    std::shared_ptr<engines::agent_port> port;
    if (has_agent) {
      auto board = take(sizeof(agent_board));
      memory.bell = std::make_shared<const agent_bell>(std::move(board), std::move(answer.fds[next++]));
      port = std::make_shared<engines::socket_agent_port>(memory.bell, content->socket);
    }
    const roster table(memory.roster, options_.world_size, options_.rank);
    std::map<int, int> ranks_of;
    for (int rank = 0; rank < options_.world_size; ++rank) {
      ++ranks_of[table.machine(rank)];
    }
    if (content->has_local) {
      memory.local = take(group(ranks_of[table.machine(options_.rank)], false));
    }
    if (content->has_leaders) {
      memory.leaders = take(group(static_cast<int>(ranks_of.size()), true));
    }
    return enter_machine(memory, std::move(port), content->agent, options_.rank, options_.world_size);
  }

  local_connection leader_;
  const job_options& options_;
  deadline give_up_;
};

/// Joins a job that may have several machines, and waits until all of its ranks have come. Throws as join_local_job
/// does.
inline membership join_job(job_options options) {
  const auto give_up = deadline::in(options.timeout);
  const std::string name = socket_name(options.local_key);
  local::hello introduction;
  introduction.rank = options.rank;
  introduction.world_size = options.world_size;
  introduction.pid = static_cast<std::int32_t>(::getpid());
  introduction.milliseconds_left = give_up.milliseconds_left();
  while (true) {
    if (auto listener = local_listener::try_at(name)) {
      return job_start(std::move(options), std::move(*listener)).run();
    }
    auto connection = connect_to(name);
    if (connection && local::introduce(*connection, introduction, give_up)) {
      options.exchange->attend();
      return machine_member(std::move(*connection), options, give_up).run();
    }
    if (give_up.passed()) {
      throw timeout_error(error_context{},
                          "timed out: the job did not start in time: the process that has its local socket (@" + name +
                              ") does not answer",
                          {});
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace hfcomm::rendezvous
