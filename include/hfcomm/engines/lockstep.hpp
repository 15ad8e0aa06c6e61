// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <hfcomm/engines/call_text.hpp>
#include <hfcomm/engines/group_memory.hpp>
#include <hfcomm/engines/job.hpp>
#include <hfcomm/engines/operation.hpp>
#include <hfcomm/engines/shared_memory_layout.hpp>
#include <hfcomm/engines/waiting.hpp>
#include <hfcomm/error.hpp>

namespace hfcomm::engines {

/// The ranks of a group, step by step. In a step every rank publishes one cell (and perhaps its slot) and then waits
/// for the cells of the others; every algorithm is a row of such steps, and all ranks take the same row.
///
/// Why `depth` = 4 places suffice: an algorithm reads what was published in step q before it publishes step q + 2. A
/// rank publishes step s only after it has seen every rank publish s - 2 (`begin` waits for a step that was left
/// unwaited), by when all have read step s - 4 and its place is free.
class lockstep {
 public:
  lockstep(std::shared_ptr<rendezvous::shared_segment> segment, std::shared_ptr<local_job> job,
           std::vector<int> members, int rank)
      : memory_(std::move(segment), static_cast<int>(members.size())),
        job_(std::move(job)),
        members_(std::move(members)),
        rank_(rank),
        patience_(detail::patience::for_ranks(job_->people->size())) {}

  lockstep(const lockstep&) = delete;
  lockstep& operator=(const lockstep&) = delete;

  ~lockstep() {
    if (!home_.at_home()) {
      return;
    }
    block(rank_).departed.store(std::uncaught_exceptions() > 0 ? 2 : 1);
    memory_.wake();
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(members_.size()); }
  [[nodiscard]] std::uint64_t operations() const noexcept { return operations_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }
  [[nodiscard]] bool broken() const noexcept { return header().lost.state.load() == 2; }
  [[nodiscard]] const layout::dimensions& sizes() const noexcept { return memory_.sizes(); }
  [[nodiscard]] const std::shared_ptr<local_job>& job() const noexcept { return job_; }
  [[nodiscard]] const std::vector<int>& members() const noexcept { return members_; }

  [[nodiscard]] layout::flag_cell& cell(int rank, std::uint64_t step) const noexcept {
    return memory_.cell(rank, step);
  }
  [[nodiscard]] std::byte* slot(int rank, std::uint64_t step) const noexcept { return memory_.slot(rank, step); }
  [[nodiscard]] std::byte* result(int rank, std::uint64_t step) const noexcept { return memory_.result(rank, step); }

  /// Starts an operation. Where the one before was left without waiting, its ranks are waited for and checked here; an
  /// error found that way is announced as this operation's failure, so that nobody waits for this rank in vain.
  void begin(const operation& call) {
    operations_.store(operations() + 1, std::memory_order_relaxed);
    catch_up(call);
  }

  /// What `begin` would throw, for an operation whose step comes later: so that publishing it will not have to wait.
  void prepare(const operation& call) {
    begin(call);
    operations_.store(operations() - 1, std::memory_order_relaxed);
  }

  /// Publishes this rank's next step: the slot and the cell's payload have been filled (see `next`).
  void publish(const operation& call, const std::string* failure = nullptr, bool wake_everyone = false) {
    const std::uint64_t step = step_ + 1;
    layout::flag_cell& mine = cell(rank_, step);
    mine.signature.store(call.signature(), std::memory_order_relaxed);
    mine.bytes.store(call.bytes, std::memory_order_relaxed);
    mine.what.store(pack_call(call, failure != nullptr), std::memory_order_relaxed);
    mine.tag.store(call.tag, std::memory_order_relaxed);
    mine.site.store(sites_.index_of(call, block(rank_).sites), std::memory_order_relaxed);
    mine.number.store(static_cast<std::uint32_t>(operations()), std::memory_order_relaxed);
    if (failure != nullptr) {
      auto* words = ::new (&block(rank_).failures[step % layout::depth]) rendezvous::last_words{};
      words->say(*failure);
      excused_ = step;
    }
    step_ = step;
    // Sequentially consistent, as are the sleepers' steps: either we see the sleeper or it sees this step.
    mine.sequence.store(step, std::memory_order_seq_cst);
    if (header().sleepers.load(std::memory_order_seq_cst) != 0 && (wake_everyone || all_arrived())) {
      memory_.wake();
    }
  }

  /// The step that `publish` will publish.
  [[nodiscard]] std::uint64_t next() const noexcept { return step_ + 1; }

  /// Waits until every rank has published the current step.
  void wait_all(const operation& call) {
    int rank = 0;
    wait(call, -1, [&]() noexcept {
      for (; rank < size(); ++rank) {
        if (cell(rank, step_).sequence.load(std::memory_order_seq_cst) < step_) {
          return false;
        }
      }
      return true;
    });
    verified_ = step_;
  }

  /// Waits for one rank's current step and checks it; the other ranks are left for the next operation to wait for.
  void wait_for(const operation& call, int source) {
    wait(call, source,
         [&]() noexcept { return cell(source, step_).sequence.load(std::memory_order_seq_cst) >= step_; });
    try {
      check_failure(call, source);
      if (cell(source, step_).signature.load(std::memory_order_relaxed) != call.signature()) {
        throw_mismatch(call, std::min(source, rank_), std::max(source, rank_));
      }
    } catch (...) {
      excused_ = step_;
      throw;
    }
  }

  /// Compares the current step, an operation's first, over all ranks. Everyone sees the same cells, so everyone comes
  /// to the same verdict and nothing has to be agreed on.
  void check(const operation& call) {
    if (excused_ == step_) {
      return;
    }
    const std::uint64_t reference = cell(0, step_).signature.load(std::memory_order_relaxed);
    for (int rank = 0; rank < size(); ++rank) {
      check_failure(call, rank);
    }
    for (int rank = 1; rank < size(); ++rank) {
      if (cell(rank, step_).signature.load(std::memory_order_relaxed) != reference) {
        throw_mismatch(call, 0, rank);
      }
    }
  }

  /// For a loss that was noticed outside a wait: breaks the group, so that all its ranks name the same culprit.
  void throw_if_lost(const operation& call, const std::vector<int>& ranks) {
    if (broken()) {
      throw_verdict(call);
    }
    if (const auto loss = find_loss(ranks, false)) {
      break_group(call, loss->first, ranks, loss->second.text);
    }
  }

  void cancel() noexcept {
    cancelled_.store(true);
    memory_.wake();
  }

  void set_polite(bool polite) noexcept {
    patience_ = polite ? detail::patience{} : detail::patience::for_ranks(job_->people->size());
  }

  [[nodiscard]] error_context context(const operation& call) const {
    return {rank_, size(), call_name(call), operations(), call.where};
  }

  /// "rank 2 (pid 4711 on node3)"
  [[nodiscard]] std::string who(int rank) const {
    return "rank " + std::to_string(rank) + " (" + job_->people->identity(members_[static_cast<std::size_t>(rank)]) +
           ')';
  }

  /// What `rank` called in the step that this rank published last, and that all have.
  [[nodiscard]] std::string matching_call(int rank) const {
    return describe_call(cell(rank, step_), block(rank).sites);
  }

  /// What `rank` called last, as far as it has published it: "barrier() at x.cpp:7 as #3", or "nothing yet".
  [[nodiscard]] std::string last_call(int rank) const {
    const layout::flag_cell* latest = nullptr;
    for (const auto& candidate : block(rank).cells) {
      if (latest == nullptr || candidate.sequence.load() > latest->sequence.load()) {
        latest = &candidate;
      }
    }
    if (latest->sequence.load() == 0) {
      return "nothing yet";
    }
    return describe_call(*latest, block(rank).sites) + " as #" + std::to_string(latest->number.load());
  }

 private:
  static constexpr std::chrono::milliseconds look_interval{20};

  [[nodiscard]] layout::group_header& header() const noexcept { return memory_.header(); }
  [[nodiscard]] layout::rank_block& block(int rank) const noexcept { return memory_.block(rank); }

  [[nodiscard]] bool all_arrived() const noexcept {
    for (int rank = 0; rank < size(); ++rank) {
      if (cell(rank, step_).sequence.load(std::memory_order_seq_cst) < step_) {
        return false;
      }
    }
    return true;
  }

  void catch_up(const operation& call) {
    if (!home_.at_home()) {
      throw usage_error(context(call), "this group was made before a fork; the child process is not a rank of it");
    }
    if (cancelled_.load(std::memory_order_relaxed)) {
      throw engine_error(context(call), "the group is being closed");
    }
    if (broken()) {
      throw_verdict(call);
    }
    if (verified_ < step_) {
      wait_all(call);
      try {
        check(call);
      } catch (const error& problem) {
        const std::string text = "an earlier operation of this rank failed: " + problem.detail();
        publish(call, &text);
        throw;
      }
    }
  }

  template <class Arrived>
  void wait(const operation& call, int source, Arrived&& arrived) {
    if (!detail::wait_briefly(patience_, arrived)) {
      wait_long(call, source, arrived);
    }
  }

  /// Sleeps until the others have come, one of them is lost, the group is lost, or time is up.
  template <class Arrived>
  void wait_long(const operation& call, int source, Arrived& arrived) {
    using clock = std::chrono::steady_clock;
    const auto start = clock::now();
    auto next_look = start + look_interval;
    bool warned = false;
    while (true) {
      header().sleepers.fetch_add(1);
      const std::uint32_t epoch = header().wake_epoch.load();
      if (!arrived() && !broken() && !cancelled_.load()) {
        detail::futex_wait(header().wake_epoch, epoch, look_interval);
      }
      header().sleepers.fetch_sub(1);
      if (arrived()) {
        return;
      }
      if (cancelled_.load()) {
        throw engine_error(context(call), "the group is being closed");
      }
      if (broken()) {
        throw_verdict(call);
      }
      const auto now = clock::now();
      if (now < next_look) {
        continue;
      }
      next_look = now + look_interval;
      const auto missing = missing_ranks(source);
      if (const auto loss = find_loss(missing, true)) {
        break_group(call, loss->first, missing, loss->second.text);
      }
      if (!warned && now - start >= warn_after_) {
        warned = true;
        warn(call, missing, now - start);
      }
      if (call.timeout.count() > 0 && now - start >= call.timeout) {
        if (arrived()) {
          return;
        }
        break_group(call, -1, missing, {});
      }
    }
  }

  [[nodiscard]] std::vector<int> missing_ranks(int source) const {
    std::vector<int> missing;
    for (int rank = 0; rank < size(); ++rank) {
      if ((source < 0 || rank == source) && cell(rank, step_).sequence.load() < step_) {
        missing.push_back(rank);
      }
    }
    return missing;
  }

  /// The rank because of which a missing rank will never come, and how it ended; nullopt where all may still come. A
  /// rank that left because it had noticed another's death is not the one to blame: every survivor must name the same.
  [[nodiscard]] std::optional<std::pair<int, rendezvous::rank_ending>> find_loss(const std::vector<int>& missing,
                                                                                 bool waiting) const {
    using kind = rendezvous::rank_ending::kind;
    std::optional<std::pair<int, rendezvous::rank_ending>> loss;
    const auto consider = [&](int rank, std::optional<rendezvous::rank_ending> end) {
      if (end && (!loss || end->how < loss->second.how)) {
        loss.emplace(rank, std::move(*end));
      }
    };
    for (const int rank : missing) {
      auto end = ending(rank);
      // Looking takes time: it may have come in the meantime, and ended only then.
      if (end && !(waiting && cell(rank, step_).sequence.load() >= step_)) {
        consider(rank, std::move(end));
      }
    }
    for (int rank = 0; loss && loss->second.how > kind::died && rank < size(); ++rank) {
      auto end = job_->people->ending(members_[static_cast<std::size_t>(rank)]);
      if (end && end->how != kind::left) {
        consider(rank, std::move(end));
      }
    }
    return loss;
  }

  /// How a rank that has not come is known never to come; nullopt where it may still.
  [[nodiscard]] std::optional<rendezvous::rank_ending> ending(int rank) const {
    using kind = rendezvous::rank_ending::kind;
    const int index = members_[static_cast<std::size_t>(rank)];
    if (auto end = job_->people->ending(index)) {
      return end;
    }
    const auto departed = block(rank).departed.load();
    if (departed == 0 || cell(rank, step_).sequence.load() >= step_) {
      return std::nullopt;  // the second look: it came, then left
    }
    if (departed == 1) {
      return rendezvous::rank_ending{kind::left, "has left the group"};
    }
    // An exception is on its way up there; who catches it (launch, run_ranks) will tell its text.
    for (int patience = 0; patience < 300; ++patience) {
      if (auto end = job_->people->ending(index)) {
        return end;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return rendezvous::rank_ending{kind::failed_because_of_another, "left the group because of an exception"};
  }

  void warn(const operation& call, const std::vector<int>& missing, std::chrono::nanoseconds waited) const {
    std::string line = "[hfcomm] " + detail::describe(context(call), "still waiting after " + format_duration(waited) +
                                                                         " for " + list_ranks(missing) + ':');
    for (const int rank : missing) {
      line += ' ' + std::to_string(rank) + " last called " + last_call(rank) + ';';
    }
    line.back() = '\n';
    std::fputs(line.c_str(), stderr);
  }

  /// Writes the verdict, unless another rank was faster, and throws it.
  [[noreturn]] void break_group(const operation& call, int culprit, const std::vector<int>& missing,
                                const std::string& how) {
    layout::verdict& lost = header().lost;
    std::uint32_t none = 0;
    if (lost.state.compare_exchange_strong(none, 1)) {
      std::string text;
      if (culprit >= 0) {
        text = who(culprit) + ' ' + how + "; the last thing it called was " + last_call(culprit);
      } else {
        text = list_ranks(missing) + " did not arrive at " + call_name(call) + " #" + std::to_string(operations()) +
               " (" + detail::describe(call.where) + ") within " + format_duration(call.timeout) + ", so rank " +
               std::to_string(rank_) + " gave up.";
        for (const int rank : missing) {
          text += ' ' + who(rank) + " last called " + last_call(rank) + '.';
        }
      }
      lost.culprit = culprit;
      for (const int rank : missing) {
        lost.missing[rank / 64] |= std::uint64_t{1} << (rank % 64);
      }
      std::snprintf(lost.text, sizeof(lost.text), "%s", text.c_str());
      lost.state.store(2);
      memory_.wake();
    }
    // The winner writes a few hundred bytes. Should it die doing so, our own findings must do.
    for (int patience = 0; lost.state.load() != 2 && patience < 100; ++patience) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (lost.state.load() != 2) {
      lost.state.store(2);
    }
    throw_verdict(call);
  }

  [[noreturn]] void throw_verdict(const operation& call) const {
    const layout::verdict& lost = header().lost;
    const std::string text =
        lost.text[0] != '\0' ? std::string(lost.text) : "a rank was lost, and the one that noticed too";
    if (lost.culprit >= 0) {
      throw peer_error(context(call), text, lost.culprit, true);
    }
    std::vector<int> missing;
    for (int rank = 0; rank < size(); ++rank) {
      if ((lost.missing[rank / 64] >> (rank % 64) & 1) != 0) {
        missing.push_back(rank);
      }
    }
    throw timeout_error(context(call), text, std::move(missing));
  }

  void check_failure(const operation& call, int rank) const {
    const layout::flag_cell& theirs = cell(rank, step_);
    if (rank != rank_ && announces_failure(theirs)) {
      std::string text = block(rank).failures[step_ % layout::depth].heard().value_or(std::string());
      if (text.empty()) {
        // A scope was left by an exception whose text only its catcher knows; wait a moment for it.
        const int index = members_[static_cast<std::size_t>(rank)];
        for (int patience = 0; patience < 300 && text.empty(); ++patience) {
          text = job_->people->words_of(index).value_or(std::string());
          std::this_thread::sleep_for(std::chrono::milliseconds(text.empty() ? 1 : 0));
        }
        text = text.empty() ? "an exception" : text;
      }
      throw peer_error(context(call),
                       who(rank) + " failed in " + describe_call(theirs, block(rank).sites) + ": " + text, rank, false);
    }
  }

  [[noreturn]] void throw_mismatch(const operation& call, int first, int second) const {
    const std::string number = std::to_string(cell(first, step_).number.load());
    throw mismatch_error(context(call),
                         "ranks " + std::to_string(first) + " and " + std::to_string(second) +
                             " disagree about operation #" + number + " of their group: rank " + std::to_string(first) +
                             " called " + describe_call(cell(first, step_), block(first).sites) + ", rank " +
                             std::to_string(second) + " called " +
                             describe_call(cell(second, step_), block(second).sites),
                         first, second);
  }

  group_memory memory_;
  std::shared_ptr<local_job> job_;
  std::vector<int> members_;  // this group's ranks as indices into the roster
  int rank_;
  detail::patience patience_;
  std::chrono::milliseconds warn_after_ = detail::warning_time();
  site_table sites_;
  std::atomic<std::uint64_t> operations_{0};  // atomic for a second thread that is refused and says so
  std::uint64_t step_ = 0;                    // the last step this rank published
  std::uint64_t verified_ = 0;                // the last step for which all ranks were waited for
  std::uint64_t excused_ = 0;                 // a step whose failure this rank has already reported or caused
  std::atomic<bool> cancelled_{false};
  rendezvous::fork_guard home_;
};

}  // namespace hfcomm::engines
