// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/engine/hierarchical/agent_alarm.hpp>
#include <hfcomm/engine/hierarchical/agent_socket.hpp>
#include <hfcomm/engine/hierarchical/agent_thread.hpp>
#include <hfcomm/engine/hierarchical/connected_port.hpp>
#include <hfcomm/engine/hierarchical/control_channel.hpp>
#include <hfcomm/engine/hierarchical/frame.hpp>
#include <hfcomm/engine/hierarchical/frame_receiver.hpp>
#include <hfcomm/engine/hierarchical/group_mirror.hpp>
#include <hfcomm/engine/hierarchical/job_liveness.hpp>
#include <hfcomm/engine/hierarchical/machine_links.hpp>
#include <hfcomm/engine/links/link.hpp>
#include <hfcomm/engine/machine_connection.hpp>
#include <hfcomm/machine/agent_bell.hpp>
#include <hfcomm/machine/roster.hpp>

namespace hfcomm::engines {

/// A machine's agent, in the process of one of its ranks. A thread of it, and ranks that wait there, carry what the
/// ranks write to the other machines, and what comes from there to the ranks. It is the port of the ranks in its
/// process.
class machine_agent final : public machine_connection, public connected_port, private frame_target {
 public:
  struct parts {
    int self = 0;
    std::vector<int> machine_of{};  ///< The machine of each rank of the job.
    std::vector<int> leaders{};     ///< The rank of each machine whose process has its agent.
    std::shared_ptr<rendezvous::roster> roster{};
    std::unique_ptr<engines::link> link;       ///< Open.
    std::unique_ptr<control_channel> control;  ///< Connected.
    std::shared_ptr<const rendezvous::agent_bell> bell{};
    std::string socket{};  ///< The name at which other processes of this machine give it groups; empty: there are none.
    std::chrono::milliseconds silence_limit = std::chrono::seconds(5);
  };

  explicit machine_agent(parts from)
      : self_(from.self),
        control_(std::move(from.control)),
        alarm_(std::move(from.bell)),
        machines_(1 + *std::max_element(from.machine_of.begin(), from.machine_of.end())),
        liveness_(std::move(from.roster), from.machine_of, std::move(from.leaders), self_, *control_,
                  from.silence_limit),
        machine_of_(std::move(from.machine_of)),
        links_(std::move(from.link), self_, machines_) {
    if (!from.socket.empty()) {
      socket_.emplace(from.socket);
      alarm_.watch(socket_->fd());
    }
    alarm_.watch(control_->descriptor());
  }
  machine_agent(const machine_agent&) = delete;
  machine_agent& operator=(const machine_agent&) = delete;
  ~machine_agent() override {
    if (!creator_.in_creating_process()) {
      links_.leave_to_parent();
      return;
    }
    thread_.reset();
    links_.close();
    liveness_.end_agent();
    wake_all();
  }

  [[nodiscard]] const std::shared_ptr<const rendezvous::agent_bell>& bell() const noexcept override {
    return alarm_.bell();
  }
  [[nodiscard]] std::string_view link_name() const noexcept { return links_.carrier().name(); }

  /// Begins to carry. Nothing that comes for a group before it was added is kept, so the first groups come before this.
  void start() { thread_->start(); }

  [[nodiscard]] bool is_in_this_process() const noexcept override { return true; }
  void drive() noexcept override { thread_->drive(); }
  void add_group(std::uint64_t id, const std::vector<int>& members,
                 const std::shared_ptr<rendezvous::shared_segment>& memory) override {
    auto made = std::make_unique<group_mirror>(id, members, machine_of_, self_, memory);
    const auto lock = thread_->lock();
    take_group(std::move(made));
  }

  /// Makes collectives that carry their bytes themselves, where each machine of the job has one rank: it is in the
  /// process of its agent.
  [[nodiscard]] std::unique_ptr<machine_collectives> make_collectives(lockstep& steps,
                                                                      const std::vector<int>& machine_of) override {
    const bool has_one_each = static_cast<int>(machine_of_.size()) == machines_;
    return has_one_each && registered_direct() != nullptr && links_.carrier().takes_any_channel()
               ? registered_direct()(steps, *this, machine_of)
               : connected_port::make_collectives(steps, machine_of);
  }
  /// Moves the link's transfers on and, now and then, all else. For a rank that waits for its own transfers.
  void drive_link() noexcept { thread_->drive(true); }
  /// Lets the agent's thread do the work at once.
  void stop_driving() noexcept { thread_->stop_driving(); }
  /// Returns the lock that protects `links`.
  [[nodiscard]] std::unique_lock<std::mutex> lock() { return thread_->lock(); }
  [[nodiscard]] machine_links& links() noexcept { return links_; }

  void report_endings(std::chrono::milliseconds limit) noexcept override {
    if (!creator_.in_creating_process()) {
      return;
    }
    const std::uint64_t wanted = ticks_.load() + 2;  // one that begins after this
    hurries_.store(true);
    bell()->ring();
    for (const auto end = clock::now() + limit; ticks_.load() < wanted && clock::now() < end;) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    hurries_.store(false);
  }

  [[nodiscard]] bool finish(std::chrono::milliseconds limit) override {
    if (!creator_.in_creating_process()) {
      return true;
    }
    auto lock = thread_->lock();
    finishes_ = true;
    bell()->ring();
    return finished_.wait_for(lock, limit, [this] { return is_finished_; });
  }

 private:
  using clock = std::chrono::steady_clock;

  /// The time between looks at sockets, which take longer than those at memory.
  static constexpr std::chrono::microseconds look_interval{200};

  /// Moves on what is under way, without waiting. Returns whether there was anything. `has_moved`: transfers have since
  /// the pass before.
  bool do_pass(clock::time_point now, bool has_moved) {
    if (now >= next_look_) {
      next_look_ = now + look_interval;
      take_groups();
      take_control();
    }
    const bool moved = progress(has_moved);
    if (now >= next_tick_ || hurries_.load(std::memory_order_relaxed)) {
      next_tick_ = now + agent_thread::longest_pause;
      links_.report_failing(now, [&](int machine) {
        liveness_.report_lost(machine, detail::concat({"has no working ", link_name(), " connection"}));
      });
      tick();
      ticks_.fetch_add(1);
    }
    return moved;
  }

  bool progress(bool has_moved) {
    const bool has_sent = collect();
    const bool have_moved = links_.progress(*this) || has_moved;
    for (auto& [id, group] : groups_) {
      group->wake_if_new(have_moved);
    }
    links_.sender().reap();
    return has_sent || have_moved;
  }

  /// Sends what this machine's ranks have written.
  bool collect() {
    auto& board = bell()->board();
    bool any = false;
    for (std::size_t word = 0; word < std::size(board.groups); ++word) {
      if (board.groups[word].load(std::memory_order_relaxed) == 0) {
        continue;
      }
      const std::uint64_t bits = board.groups[word].exchange(0);
      for (auto& [id, group] : groups_) {
        const std::uint32_t index = group->board_index();
        if (index / 64 == word && (bits >> (index % 64) & 1) != 0) {
          any = group->collect(links_.sender()) || any;
          propose(*group);
        }
      }
    }
    return any;
  }

  void propose(group_mirror& group) {
    if (const auto proposal = group.take_proposal()) {
      if (const auto verdict = liveness_.propose(*proposal)) {
        group.break_with(*verdict);
      }
    }
  }

  void take_control() {
    while (const auto message = control_->receive()) {
      const auto news = liveness_.take(*message);
      if (news.verdict) {
        if (const auto found = groups_.find(news.verdict->group); found != groups_.end()) {
          found->second->break_with(*news.verdict);
        }
      }
      forget_lost_machines();
      if (news.someone_ended) {
        wake_all();
      }
    }
    if (liveness_.has_urgent_news()) {
      liveness_.tell_endings();
    }
  }

  void take_group(std::unique_ptr<group_mirror> made) {
    made->set_board_index(next_index_++ % rendezvous::agent_board::bits);
    groups_.insert_or_assign(made->id(), std::move(made));
  }

  /// Takes groups from other processes of this machine.
  void take_groups() {
    if (!socket_) {
      return;
    }
    const auto take = [&](const group_packet& group, rendezvous::unique_fd memory) {
      const auto is_unknown = [&](std::size_t member) { return member >= machine_of_.size(); };
      if (group.members.empty() || std::ranges::any_of(group.members, is_unknown)) {
        detail::throw_error<engine_error>({"its members are not those of the job"});
      }
      const std::vector<int> members(group.members.begin(), group.members.end());
      const auto sizes = layout::dimensions::for_machines(static_cast<int>(members.size()));
      take_group(
          std::make_unique<group_mirror>(group.id, members, machine_of_, self_,
                                         rendezvous::shared_segment::adopt(std::move(memory), sizes.total_bytes())));
    };
    try {
      socket_->serve(take);
    } catch (const error& problem) {  // the rank that asks gives up after a while
      if (!std::exchange(has_refused_, true)) {
        std::fprintf(stderr, "[hfcomm] the process that connects this machine cannot take a new group: %s\n",
                     problem.what());
      }
    }
  }

  void tick() {
    const bool news = liveness_.tick();
    forget_lost_machines();
    if (news) {
      wake_all();
    }
    for (auto& [id, group] : groups_) {
      group->collect(links_.sender());
      group->send_rare_changes(links_.sender());
      propose(*group);
    }
    for (const int rank : liveness_.take_left_ranks()) {  // after their groups were collected
      links_.send_to_all(frame_kind::rank_left, rank);
    }
    retire_groups();
    if (finishes_) {
      say_goodbye();
    }
  }

  void wake_all() {
    for (auto& [id, group] : groups_) {
      group->wake_all();
    }
  }

  void forget_lost_machines() {
    for (int machine = 0; machine < machines_; ++machine) {
      const bool is_new = liveness_.is_lost(machine) && links_.give_up(machine);
      if (is_new && machine == 0) {  // the root may not have decided on what was proposed to it
        for (auto& [id, group] : groups_) {
          group->propose_again();
        }
      }
    }
  }

  /// Drops groups that all ranks of this machine have left, once nothing of them is under way.
  void retire_groups() {
    for (auto one = groups_.begin(); one != groups_.end();) {
      if (one->second->is_over()) {
        retired_.push_back(std::move(one->second));
        one = groups_.erase(one);
      } else {
        ++one;
      }
    }
    if (!retired_.empty() && links_.is_idle()) {
      retired_.clear();
    }
  }

  void say_goodbye() {
    if (!liveness_.local_ranks_have_ended()) {
      return;
    }
    links_.say_goodbye();
    if (!is_finished_ && links_.may_leave() && liveness_.may_leave()) {
      is_finished_ = true;
      finished_.notify_all();
    }
  }

  [[nodiscard]] group_mirror* group_of(int machine, const frame& what) {
    const auto found = groups_.find(what.group);
    return found != groups_.end() && found->second->is_valid(machine, what) ? found->second.get() : nullptr;
  }

  [[nodiscard]] std::span<std::byte> place_for(int machine, const frame& what) override {
    group_mirror* const group = group_of(machine, what);
    return group != nullptr ? group->place_for(what) : std::span<std::byte>();
  }

  void apply(int machine, const frame& what, std::span<const std::byte> payload) override {
    if (what.kind == frame_kind::rank_left) {
      liveness_.take_left(machine, what.rank);
      wake_all();
    } else if (what.kind == frame_kind::goodbye) {
      links_.take_goodbye(machine);
    } else if (what.kind == frame_kind::goodbye_answer) {
      links_.take_goodbye_answer(machine);
    } else if (group_mirror* const group = group_of(machine, what); group != nullptr) {
      group->apply(machine, what, payload);
      if (what.kind == frame_kind::question) {
        group->send_quiet_steps(links_.sender());
      }
    }
  }

  int self_;
  std::unique_ptr<control_channel> control_;
  agent_alarm alarm_;
  int machines_;
  job_liveness liveness_;
  std::vector<int> machine_of_;
  machine_links links_;
  std::unordered_map<std::uint64_t, std::unique_ptr<group_mirror>> groups_;
  std::vector<std::unique_ptr<group_mirror>> retired_;
  std::optional<agent_socket> socket_;
  std::uint32_t next_index_ = 0;
  clock::time_point next_look_;
  clock::time_point next_tick_;
  std::atomic<std::uint64_t> ticks_{0};
  std::atomic<bool> hurries_{false};  // somebody waits for a tick
  bool finishes_ = false;
  bool is_finished_ = false;
  bool has_refused_ = false;  // a new group
  std::condition_variable finished_;
  rendezvous::fork_guard creator_;
  std::unique_ptr<agent_thread> thread_ = std::make_unique<agent_thread>(
      [this](clock::time_point now, bool has_moved) { return do_pass(now, has_moved); }, links_.carrier(), alarm_);
};

}  // namespace hfcomm::engines
