// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/engine/group_health.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/machine/waiting.hpp>

namespace hfcomm::engines {

/// The liveness of ranks that share a machine. It reads the job's roster, and keeps the break record in the group's
/// memory.
class shared_memory_health final : public group_health {
 public:
  using kind = rendezvous::rank_ending::kind;
  using clock = std::chrono::steady_clock;
  struct loss {
    int rank;
    rendezvous::rank_ending end;
  };

  shared_memory_health(std::shared_ptr<rendezvous::shared_segment> segment, std::shared_ptr<local_job> job,
                       std::vector<int> members, int rank)
      : group_health(rank, static_cast<int>(members.size())),
        memory_(std::move(segment), static_cast<int>(members.size()),
                job->spans_machines(members) ? job->port->bell() : nullptr),
        job_(std::move(job)),
        members_(std::move(members)) {}

  ~shared_memory_health() override {
    if (creator_.in_creating_process()) {
      block(rank()).departed.store(std::uncaught_exceptions() > 0 ? 2 : 1);
      memory_.wake();
      for (int other = 0; other < size(); ++other) {
        memory_.notify(other);
      }
      memory_.note_step(rank());
    }
  }

  [[nodiscard]] const std::vector<int>& members() const noexcept { return members_; }
  /// Returns the machine of each rank.
  [[nodiscard]] std::vector<int> machines() const {
    std::vector<int> machine_of;
    machine_of.reserve(members_.size());
    for (const int member : members_) {
      machine_of.push_back(job_->machine(member));
    }
    return machine_of;
  }
  /// Returns the ranks on this rank's machine.
  [[nodiscard]] std::vector<int> neighbours() const {
    std::vector<int> ranks;
    for (int other = 0; other < size(); ++other) {
      if (job_->machine(index_of(other)) == job_->machine(index_of(rank()))) {
        ranks.push_back(other);
      }
    }
    return ranks;
  }
  /// Returns this rank's number among the job's ranks on its machine.
  [[nodiscard]] int local_rank() const noexcept { return job_->local_rank(index_of(rank())); }
  /// Returns the agent that carries this group, where it is in this process; else null.
  [[nodiscard]] std::shared_ptr<agent_port> local_agent() const {
    return memory_.spans_machines() && job_->port->is_in_this_process() ? job_->port : nullptr;
  }
  [[nodiscard]] const std::shared_ptr<local_job>& job() const noexcept { return job_; }
  [[nodiscard]] const group_memory& memory() const noexcept { return memory_; }
  [[nodiscard]] bool in_creating_process() const noexcept { return creator_.in_creating_process(); }
  [[nodiscard]] bool is_broken() const noexcept override { return header().lost.is_complete(); }

  /// Returns whether the job has more ranks on this machine than cores.
  [[nodiscard]] bool shares_cores() const noexcept {
    return detail::ranks_share_cores(job_->roster->local_size(), job_->roster->ranks_are_processes());
  }

  /// Returns whether a rank of the group is on this machine.
  [[nodiscard]] bool is_on_this_machine(int rank) const noexcept {
    return job_->roster->machine(index_of(rank)) == job_->roster->machine(job_->roster->index());
  }

  /// Returns the rank's name for error texts: "rank 2 (pid 4711 on node3)".
  [[nodiscard, gnu::cold]] std::string who(int rank) const {
    return detail::concat({"rank ", rank, " (", job_->roster->identity(index_of(rank)), ')'});
  }

  static constexpr const char* no_call = "called nothing in this group";

  /// Describes the last calls of `rank`: "last called barrier() at x.cpp:7 as #3, and of messages recv(...) at ...".
  [[nodiscard, gnu::cold]] std::string last_call(int rank) const {
    const layout::flag_cell* latest = nullptr;
    for (const auto& candidate : block(rank).cells) {
      if (latest == nullptr || candidate.step.load() > latest->step.load()) {
        latest = &candidate;
      }
    }
    std::string text;
    if (latest->step.load() != 0) {
      text =
          detail::concat({"last called ", describe_call(*latest, block(rank).sites), " as #", latest->sequence.load()});
    }
    if (const std::uint64_t number = block(rank).messages.last_call.number.load(); number != 0) {
      detail::append(text, {text.empty() ? "last called " : ", and of messages ", last_message(rank), " as #", number});
    }
    return text.empty() ? no_call : text;
  }
  /// Describes the last call of `rank` that was a message: "recv(...) at x.cpp:7".
  [[nodiscard, gnu::cold]] std::string last_message(int rank) const {
    const layout::mailbox& box = block(rank).messages;
    return describe_call(box.sites[box.last_call.site.load() % layout::site_count], box.last_call.what.load(),
                         box.last_call.bytes.load(), box.last_call.tag.load());
  }

  /// Returns the rank to blame because one of `missing` will never come, and how it ended; nullopt where all may still
  /// come. `came(rank)` is asked after each check, because a rank may come first and end then. A rank that left because
  /// it had noticed another's death is not to blame: every survivor must name the same rank.
  template <class Came>
  [[nodiscard, gnu::cold]] std::optional<loss> find_loss(const std::vector<int>& missing, Came&& came) const {
    std::optional<loss> found;
    const auto consider = [&](int rank, std::optional<rendezvous::rank_ending> end) {
      if (end && (!found || end->how < found->end.how)) {
        found.emplace(loss{rank, std::move(*end)});
      }
    };
    for (const int rank : missing) {
      auto end = ending(rank);
      if (end && !came(rank)) {
        consider(rank, std::move(end));
      }
    }
    for (int rank = 0; found && found->end.how > kind::died && rank < size(); ++rank) {
      auto end = job_->roster->ending(index_of(rank));
      if (end && end->how != kind::left) {
        consider(rank, std::move(end));
      }
    }
    return found;
  }

  /// Returns what a rank waits for, in any group.
  [[nodiscard]] rendezvous::wait_record& wait_of(int rank) const noexcept {
    return job_->roster->wait_of(index_of(rank));
  }

  /// Returns how a rank ended or left the group; nullopt while it is there. May wait for an exception's text.
  [[nodiscard]] std::optional<rendezvous::rank_ending> ending(int rank) const {
    if (auto end = job_->roster->ending(index_of(rank))) {
      return end;
    }
    const auto departed = block(rank).departed.load();
    if (departed == 0) {
      return std::nullopt;
    }
    if (departed == 1) {
      return rendezvous::rank_ending{kind::left, left_group};
    }
    // An exception is unwinding that rank. Where launch or run_ranks catch it, they publish its text.
    const auto begin = detail::time_of_first(first_departure_);
    do {
      if (auto end = job_->roster->ending(index_of(rank))) {
        return end;
      }
    } while (awaits_text(rank, begin));
    return rendezvous::rank_ending{kind::failed_because_of_another, "left the group because of an exception"};
  }

  /// Returns the text of the exception that ended a rank's scope. Only its handler knows it, so this may wait for it,
  /// from `begin` on.
  [[nodiscard, gnu::cold]] std::string failure_text_of(int rank, clock::time_point begin = clock::now()) const {
    do {
      if (const auto text = job_->roster->failure_text_of(index_of(rank))) {
        return text->empty() ? "an exception" : *text;
      }
    } while (awaits_text(rank, begin));
    return "an exception";
  }

  /// Prints one line about the ranks that are missing and their last calls, with a remedy at its end. So many `more`
  /// messages wait for them.
  [[gnu::cold]] void warn(const error_context& context, const std::vector<int>& missing,
                          std::chrono::nanoseconds waited, std::size_t more = 0, std::string_view remedy = {}) const {
    std::string line = detail::concat(
        {"[hfcomm] ",
         detail::describe(
             context,
             detail::concat(
                 {"still waiting after ", format_duration(waited), " for ", list_ranks(missing),
                  more == 0 ? ""
                            : detail::concat({", as ", more, more == 1 ? " other message is" : " other messages are"}),
                  ':'}))});
    for (const int rank : missing) {
      const std::string wait = wait_of(rank).call();
      detail::append(line, {' ', rank, ' ', last_call(rank), wait.empty() ? "" : ", and waits in ", wait, ';'});
    }
    line.back() = remedy.empty() ? '\n' : '.';
    if (!remedy.empty()) {
      detail::append(line, {remedy, '\n'});
    }
    std::fputs(line.c_str(), stderr);
  }

  /// Records that a rank is lost, unless another rank was faster, and throws what is recorded.
  [[noreturn, gnu::cold]] void break_group(const error_context& context, const loss& lost) const {
    const std::string end = settled_text(lost);
    break_group(context, lost.rank, {}, false, [&] {
      const std::string call = last_call(lost.rank);
      if (call != no_call && lost.end.how != rendezvous::rank_ending::kind::left) {
        job_->roster->record_last_call(index_of(lost.rank), call);
      }
      const bool has_followed = lost.end.how == rendezvous::rank_ending::kind::failed_because_of_another;
      return detail::concat({who(lost.rank), ' ', end, "; it ", call,
                             has_followed ? job_->roster->other_culprit(index_of(lost.rank)) : std::string()});
    });
  }
  void abandon(const error_context& context) const noexcept override { abandon(context, true); }
  /// The same, where this rank may also leave an operation under way without an exception.
  void abandon(const error_context& context, bool because_of_exception) const noexcept {
    try {
      break_group(context, this->rank(), {}, because_of_exception, [&] {
        const std::string operation = detail::concat({context.operation, " (", detail::describe(context.where), ')'});
        return detail::concat(
            {who(this->rank()), because_of_exception
                                    ? detail::concat({" left ", operation, " under way because of an exception"})
                                    : detail::concat({" left the group in the middle of ", operation})});
      });
    } catch (...) {
      // The record is for the other ranks; this rank continues to throw its own exception.
    }
  }
  /// Records that a deadline has passed, and throws what is recorded. `beginning` says which ranks did not do what.
  [[noreturn, gnu::cold]] void break_group(const error_context& context, const std::vector<int>& missing,
                                           const std::string& beginning) const {
    break_group(context, -1, missing, false, [&] {
      std::string text = beginning;
      for (const int rank : missing) {
        detail::append(text, {' ', who(rank), ' ', last_call(rank), '.'});
      }
      return text;
    });
  }

  void break_by_this_rank(const error_context& context, const std::string& what) const noexcept override {
    try {
      break_group(context, this->rank(), {}, false, [&] { return detail::concat({who(this->rank()), ' ', what}); });
    } catch (...) {
      // The record is for the other ranks; the caller throws its own error.
    }
  }
  void break_for_timeout(const error_context& context, const std::string& what,
                         const std::vector<int>& missing) const noexcept override {
    try {
      break_group(context, missing, what);
    } catch (...) {
      // As in break_by_this_rank.
    }
  }

  [[gnu::cold]] void check_device_operation(const error_context& context, std::uint64_t number) const override {
    if (is_broken()) {
      throw_break_error(context);
    }
    std::optional<loss> found;
    for (int rank = 0; rank < size(); ++rank) {
      const device_board& board = block(rank).devices;
      if (rank == this->rank()) {
        continue;
      }
      auto end = job_->roster->ending(index_of(rank));
      const bool departed = block(rank).departed.load() != 0;
      // Read in this order: the rank may have begun the operation just before it left.
      const bool begun = board.begun.load() >= number;
      if (end && (end->how != kind::left || !begun)) {
        if (!found || end->how < found->end.how) {
          found.emplace(loss{rank, std::move(*end)});
        }
      } else if (departed && !begun && !found) {
        // `ending` waits for the text where an exception is unwinding that rank.
        found.emplace(loss{rank, ending(rank).value_or(rendezvous::rank_ending{kind::left, left_group})});
      } else if (const auto refused = board.refusal_until(number, block(this->rank()).devices);
                 refused != 0 && !found) {
        found.emplace(
            loss{rank, {kind::failed, detail::concat({"refused device operation #", refused, ": ", board.why()})}});
      }
    }
    if (found) {
      break_group(context, *found);
    }
  }

  [[nodiscard]] device_board* board_of(int rank) const noexcept override { return &block(rank).devices; }

  /// Throws the error that broke the group.
  [[noreturn, gnu::cold]] void throw_break_error(const error_context& context) const {
    const layout::break_record& lost = header().lost;
    const std::string text = lost.text;
    if (lost.culprit >= 0) {
      // A rank waits only once for the exception's text.
      std::string why;
      if (lost.by_exception && lost.culprit != this->rank()) {
        const auto begin = has_waited_.exchange(true) ? clock::time_point() : clock::now();
        why = detail::concat({": ", failure_text_of(lost.culprit, begin)});
      }
      detail::throw_error<peer_error>(context, {text + why}, lost.culprit, true);
    }
    std::vector<int> missing;
    for (int rank = 0; rank < size(); ++rank) {
      if ((lost.missing[rank / 64] >> (rank % 64) & 1) != 0) {
        missing.push_back(rank);
      }
    }
    detail::throw_error<timeout_error>(context, {text}, missing);
  }

 private:
  [[nodiscard]] layout::group_header& header() const noexcept { return memory_.header(); }
  [[nodiscard]] layout::rank_block& block(int rank) const noexcept { return memory_.block(rank); }
  /// Returns the index of one of this group's ranks in the job's roster.
  [[nodiscard]] int index_of(int rank) const noexcept { return members_[static_cast<std::size_t>(rank)]; }

  static constexpr const char* left_group = "has left the group";

  /// Waits a moment for the text of an exception that another rank has thrown; returns false where the time is over,
  /// which began at `begin`: 300 ms, or 20 ms where a rank of the job has ended by itself. The exception is probably a
  /// consequence of that, and the program may have caught it, so that nobody publishes a text.
  [[nodiscard, gnu::cold]] bool awaits_text(int rank, clock::time_point begin) const {
    return detail::sleep_within(begin, std::chrono::milliseconds(20)) ||
           (job_->roster->culprit_besides(index_of(rank)) < 0 &&
            detail::sleep_within(begin, std::chrono::milliseconds(300)));
  }

  /// Returns how a lost rank has ended, in words. The news that a rank of another machine has left its group come
  /// before those that it has left the job, so this waits for them.
  [[nodiscard, gnu::cold]] std::string settled_text(const loss& lost) const {
    const bool is_elsewhere = job_->machine(index_of(lost.rank)) != job_->machine(index_of(this->rank()));
    if (is_elsewhere && lost.end.text == left_group) {
      const auto begin = clock::now();
      do {
        if (const auto end = job_->roster->ending(index_of(lost.rank))) {
          return end->text;
        }
      } while (detail::sleep_within(begin, std::chrono::milliseconds(60)));
    }
    return lost.end.text;
  }

  template <class Text>
  [[noreturn, gnu::cold]] void break_group(const error_context& context, int culprit, const std::vector<int>& missing,
                                           bool by_exception, Text&& text) const {
    // All machines get the same record from the root's agent: the first that one of them has proposed.
    const bool asks_root = memory_.spans_machines();
    layout::break_record& record = asks_root ? header().proposed : header().lost;
    std::uint32_t state = layout::break_record::whole;
    if (record.state.compare_exchange_strong(state, layout::break_record::written_by(rank()))) {
      record.write(culprit, missing, by_exception, text());
      asks_root ? memory_.note_proposal() : memory_.wake_all();
    }
    await_record();
    throw_break_error(context);
  }

  /// Waits until the record is written: by another rank, which takes it microseconds, or by this machine's agent, when
  /// the root's agent has answered.
  [[gnu::cold]] void await_record() const {
    layout::break_record& lost = header().lost;
    layout::break_record& proposed = header().proposed;
    for (int attempt = 1; !lost.is_complete(); ++attempt) {
      std::uint32_t state = lost.state.load();
      if (state != layout::break_record::whole || !memory_.spans_machines()) {
        if (replace_writer(lost, attempt)) {
          memory_.wake_all();
        }
      } else if (!proposed.is_complete()) {
        if (replace_writer(proposed, attempt)) {
          memory_.note_proposal();
        }
      } else if ((job_->roster->agent_ending() || attempt % 10'000 == 0) &&
                 lost.state.compare_exchange_strong(state, layout::break_record::written_by(rank()))) {
        lost.copy(proposed);  // nobody can be asked, so the ranks of this machine agree without the others
        memory_.wake_all();
      }
      std::this_thread::sleep_for(memory_.spans_machines() && attempt < 100 ? std::chrono::microseconds(50)
                                                                            : std::chrono::microseconds(1000));
    }
  }

  /// Writes a record whose writer has died, which is the lost rank then. Returns whether it did.
  [[gnu::cold]] bool replace_writer(layout::break_record& record, int attempt) const {
    std::uint32_t state = record.state.load();
    if (state < layout::break_record::first_writer) {
      return false;
    }
    const int writer = static_cast<int>(state - layout::break_record::first_writer);
    // Not because it has published its end: it may be writing while it leaves.
    const bool is_over = job_->roster->process_is_over(index_of(writer));
    if ((!is_over && attempt % 10'000 != 0) ||
        !record.state.compare_exchange_strong(state, layout::break_record::written_by(rank()))) {
      return false;
    }
    const auto end = ending(writer);
    record.write(writer, {}, false,
                 detail::concat({who(writer), ' ', end ? end->text : "does not run",
                                 " while it reported a lost rank; it ", last_call(writer)}));
    return true;
  }

  group_memory memory_;
  std::shared_ptr<local_job> job_;
  std::vector<int> members_;                              // this group's ranks as indices into the roster
  mutable std::atomic<bool> has_waited_{false};           // for the text of the exception that broke the group
  mutable std::atomic<std::int64_t> first_departure_{0};  // when a rank was first seen to have left by an exception
  rendezvous::fork_guard creator_;
};

}  // namespace hfcomm::engines
