// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/engine/shared_memory/call_record.hpp>
#include <hfcomm/engine/shared_memory/group_memory.hpp>
#include <hfcomm/engine/shared_memory/layout.hpp>
#include <hfcomm/engine/shared_memory/named_parts.hpp>
#include <hfcomm/engine/shared_memory/shared_memory_health.hpp>
#include <hfcomm/engine/shared_memory/step_waiter.hpp>

namespace hfcomm::engines {

/// The steps of a group's operations. In a step every rank publishes one cell (and perhaps its slot), and then waits
/// for the cells of the others. Every algorithm is a sequence of such steps, and all ranks take the same sequence.
///
/// Why `depth` = 4 cells and slots per rank suffice: an algorithm reads what was published in step q before it
/// publishes step q + 2. It fills and publishes step s only after it has seen every rank publish s - 2. By then all
/// ranks have read step s - 4, so its cell and slot are free. A rank may therefore be two steps ahead of another that
/// it does not read.
class lockstep {
 public:
  explicit lockstep(std::shared_ptr<const shared_memory_health> watch)
      : health_(std::move(watch)), memory_(health_->memory()), rank_(health_->rank()) {}
  lockstep(const lockstep&) = delete;
  lockstep& operator=(const lockstep&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return memory_.sizes().ranks; }
  [[nodiscard]] std::uint64_t operations() const noexcept { return operations_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }
  [[nodiscard]] const layout::dimensions& sizes() const noexcept { return memory_.sizes(); }

  [[nodiscard]] layout::flag_cell& cell(int rank, std::uint64_t step) const noexcept {
    return memory_.cell(rank, step);
  }
  [[nodiscard]] std::byte* slot(int rank, std::uint64_t step) const noexcept { return memory_.slot(rank, step); }
  [[nodiscard]] std::byte* result(int rank, std::uint64_t step) const noexcept { return memory_.result(rank, step); }

  [[nodiscard]] const group_memory& memory() const noexcept { return memory_; }

  /// Starts an operation. Where this rank left the one before without waiting, it waits here for that one's ranks and
  /// checks them. An error found that way is announced as this operation's failure, so that no rank waits in vain.
  void begin(const operation& call) {
    operations_.store(operations() + 1, std::memory_order_relaxed);
    catch_up(call);
  }

  /// Throws what `begin` would throw, for an operation that is published later. Publishing it will then not wait.
  void prepare(const operation& call) {
    begin(call);
    operations_.store(operations() - 1, std::memory_order_relaxed);
  }

  /// The reader of a part of a slot that all ranks read.
  static constexpr int everyone = step_waiter::everyone;

  /// Names a part of the slot that is published next, and the rank that reads it. Parts that nobody names do not go to
  /// other machines. Parts behind the slot's bytes are those of the result.
  void note_part(std::size_t offset, std::size_t bytes, int reader = everyone) {
    parts_.add(next(), offset, bytes, reader);
  }

  /// Publishes this rank's next step, whose slot and cell payload the caller has filled (see `next`).
  void publish(const operation& call, const std::string* failure = nullptr, bool wake_everyone = false) {
    const std::uint64_t step = step_ + 1;
    layout::flag_cell& mine = cell(rank_, step);
    mine.signature.store(call.signature(), std::memory_order_relaxed);
    mine.bytes.store(call.bytes, std::memory_order_relaxed);
    mine.what.store(pack_call(call, failure != nullptr), std::memory_order_relaxed);
    mine.tag.store(call.tag, std::memory_order_relaxed);
    if (call.op == reduce_kind::premultiplied_sum) {
      mine.factor.store(call.factor, std::memory_order_relaxed);
    }
    mine.site.store(sites_.index_of(call, block(rank_).sites) | name_part(call), std::memory_order_relaxed);
    mine.sequence.store(static_cast<std::uint32_t>(operations()), std::memory_order_relaxed);
    if (failure != nullptr) {
      auto* text = ::new (&block(rank_).failures[step % layout::depth]) rendezvous::failure_text{};
      text->write(*failure);
      reported_step_ = step;
    }
    parts_.complete(step);
    step_ = step;
    // Sequentially consistent, as are the sleepers' steps: either we see the sleeper or it sees this step.
    mine.step.store(step, std::memory_order_seq_cst);
    if (header().sleepers.load(std::memory_order_seq_cst) != 0 && (wake_everyone || all_arrived())) {
      memory_.wake();
    }
    memory_.note_step(rank_);
  }

  /// Returns the step that `publish` will publish.
  [[nodiscard]] std::uint64_t next() const noexcept { return step_ + 1; }

  /// Waits until every rank has published the current step.
  void wait_all(const operation& call) { wait_all(call, step_); }

  /// Waits until every rank has published `step`, this one or an earlier one.
  void wait_all(const operation& call, std::uint64_t step) {
    if (step <= verified_) {
      return;
    }
    int rank = 0;
    wait(call, everyone, step, [&]() noexcept {
      for (; rank < size(); ++rank) {
        if (!has_come(rank, step)) {
          return false;
        }
      }
      return true;
    });
    verified_ = step;
  }

  /// Waits for one rank's current step. It is not checked, because an earlier step of the same operation has been.
  void wait_for_unchecked(const operation& call, int source) {
    wait(call, source, step_, [&]() noexcept { return has_come(source, step_); });
  }

  /// Waits for one rank's current step and checks it. The next operation waits for the other ranks.
  void wait_for(const operation& call, int source) {
    wait_for_unchecked(call, source);
    try {
      check_failure(call, source);
      if (cell(source, step_).signature.load(std::memory_order_relaxed) != call.signature()) {
        throw_mismatch(call, std::min(source, rank_), std::max(source, rank_));
      }
    } catch (...) {
      reported_step_ = step_;
      throw;
    }
  }

  /// Compares an operation's first step over all ranks. All ranks see the same cells, so all come to the same verdict
  /// without a further exchange.
  void check(const operation& call) {
    if (reported_step_ == step_) {
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

  /// Throws the error that broke the group; returns where the group is whole. Also to be called after the last access
  /// to other ranks' own memory, before the step that tells them so. A rank that leaves an operation early breaks the
  /// group before it frees that memory. So where the group is whole, what was read there is right.
  void throw_if_broken(const operation& call) const {
    if (health_->is_broken()) {
      health_->throw_break_error(context(call));
    }
  }

  /// Breaks the group where one of `ranks` is lost, and throws that error. For waits outside this class.
  void throw_if_lost(const operation& call, const std::vector<int>& ranks) {
    throw_if_broken(call);
    if (const auto loss = health_->find_loss(ranks, [](int) { return false; })) {
      health_->break_group(context(call), *loss);
    }
  }

  /// Returns whether one of `ranks` has already published the next step as a failure. `check` throws that failure once
  /// this rank has taken the step, too.
  [[nodiscard]] bool failure_is_next(std::span<const int> ranks) const noexcept {
    return std::any_of(ranks.begin(), ranks.end(), [&](int rank) {
      const layout::flag_cell& theirs = cell(rank, step_ + 1);
      return theirs.step.load(std::memory_order_acquire) == step_ + 1 && announces_failure(theirs);
    });
  }

  /// Fills `factors` with each rank's factor of a premultiplied sum, from its cell; leaves it empty for other
  /// operations.
  void gather_factors(const operation& call, std::vector<double>& factors) const {
    factors.clear();
    for (int source = 0; call.op == reduce_kind::premultiplied_sum && source < size(); ++source) {
      factors.push_back(cell(source, step_).factor.load(std::memory_order_relaxed));
    }
  }

  void cancel() noexcept { waiter_.cancel(); }

  /// Returns whether the job has more ranks on this machine than cores.
  [[nodiscard]] bool shares_cores() const noexcept { return waiter_.shares_cores(); }

  void set_yields_core(bool yields) noexcept { waiter_.set_yields_core(yields); }

  [[nodiscard]] error_context context(const operation& call) const {
    return {rank_, size(), call_name(call), operations(), call.where};
  }

  /// Describes what `rank` called in the step that this rank published last, and that all have published.
  [[nodiscard]] std::string matching_call(int rank) const {
    return describe_call(cell(rank, step_), block(rank).sites);
  }

  /// Returns whether all ranks have published the step that this rank published last, with operations of one name. A
  /// rank that published a failure counts only with `accept_failures`. All ranks that have checked the step come to the
  /// same answer: the cells stay as they are until all ranks have taken another step.
  [[nodiscard]] bool same_name_everywhere(bool accept_failures) const noexcept {
    const std::uint32_t name = cell(rank_, step_).site.load(std::memory_order_relaxed) & name_bits;
    for (int rank = 0; rank < size(); ++rank) {
      const layout::flag_cell& theirs = cell(rank, step_);
      if (theirs.step.load(std::memory_order_acquire) != step_ || (!accept_failures && announces_failure(theirs)) ||
          (theirs.site.load(std::memory_order_relaxed) & name_bits) != name) {
        return false;
      }
    }
    return true;
  }

 private:
  [[nodiscard]] layout::group_header& header() const noexcept { return memory_.header(); }
  [[nodiscard]] layout::rank_block& block(int rank) const noexcept { return memory_.block(rank); }

  /// The bits of a cell's `site` that are not an index: they hold part of the name's hash.
  static constexpr std::uint32_t name_bits = ~static_cast<std::uint32_t>(layout::site_count - 1);
  static_assert(std::has_single_bit(layout::site_count));
  static std::uint32_t name_part(const operation& call) noexcept {
    return static_cast<std::uint32_t>(call.name.hash & name_bits);
  }

  [[nodiscard]] bool all_arrived() const noexcept {
    for (int rank = 0; rank < size(); ++rank) {
      if (!has_come(rank, step_)) {
        return false;
      }
    }
    return true;
  }

  void catch_up(const operation& call) {
    if (!health_->in_creating_process()) {
      throw usage_error(context(call), "this group was made before a fork; the child process is not a rank of it");
    }
    if (waiter_.is_cancelled()) {
      throw engine_error(context(call), "cancelled: this rank is destroying the group or the object that uses it");
    }
    throw_if_broken(call);
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
  void wait(const operation& call, int source, std::uint64_t step, Arrived&& arrived) {
    waiter_.wait(call, operations(), {.rank = source, .step = step}, arrived);
  }

  [[nodiscard]] bool has_come(int rank, std::uint64_t step) const noexcept { return waiter_.has_come(rank, step); }

  void check_failure(const operation& call, int rank) const {
    const layout::flag_cell& theirs = cell(rank, step_);
    if (rank != rank_ && announces_failure(theirs)) {
      std::string text = block(rank).failures[step_ % layout::depth].read().value_or(std::string());
      if (text.empty()) {
        text = health_->failure_text_of(rank);
      }
      throw peer_error(context(call),
                       health_->who(rank) + " failed in " + describe_call(theirs, block(rank).sites) + ": " + text,
                       rank, false);
    }
  }

  /// A rank's call in words, without its place and without what each rank may have of its own.
  [[nodiscard]] std::string what_must_agree(int rank) const {
    const layout::flag_cell& theirs = cell(rank, step_);
    const std::uint64_t what = theirs.what.load();
    const bool equally_long = static_cast<payload>(what & 0xff) == payload::buffer;
    const std::string text = describe_call(block(rank).sites[theirs.site.load() % layout::site_count], what,
                                           equally_long ? theirs.bytes.load() : 0, theirs.tag.load());
    return text.substr(0, text.rfind(" at "));
  }

  [[noreturn]] void throw_mismatch(const operation& call, int first, int second) const {
    const std::string number = std::to_string(cell(first, step_).sequence.load());
    const std::string one = describe_call(cell(first, step_), block(first).sites);
    const std::string other = describe_call(cell(second, step_), block(second).sites);
    // Not everything that must agree is in the texts, and not everything in them must.
    const bool alike = what_must_agree(first) == what_must_agree(second);
    throw mismatch_error(context(call),
                         "ranks " + std::to_string(first) + " and " + std::to_string(second) +
                             " disagree about operation #" + number + " of their group: rank " + std::to_string(first) +
                             " called " + one + ", rank " + std::to_string(second) + " called " + other +
                             (alike ? "; what differs are their lists of counts or ranks" : ""),
                         first, second);
  }

  std::shared_ptr<const shared_memory_health> health_;
  const group_memory& memory_;
  int rank_;
  step_waiter waiter_{*health_};
  site_table sites_;
  std::atomic<std::uint64_t> operations_{0};  // atomic for a second thread that is refused and says so
  named_parts parts_{memory_, rank_};
  std::uint64_t step_ = 0;           // the last step this rank published
  std::uint64_t verified_ = 0;       // the last step that all ranks are known to have published
  std::uint64_t reported_step_ = 0;  // a step whose failure this rank has already reported or caused
};

}  // namespace hfcomm::engines
