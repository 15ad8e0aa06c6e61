// SPDX-License-Identifier: MIT
#pragma once

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

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/engine/shared_memory/health.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/steps/cell_checks.hpp>
#include <hfcomm/engine/shared_memory/steps/root_lists.hpp>
#include <hfcomm/engine/shared_memory/steps/step_waiter.hpp>
#include <hfcomm/machine/wait_record.hpp>

namespace hfcomm::engines {

/// The steps of a group's operations. In a step every rank publishes one cell (and perhaps its slot), and then waits
/// for the cells of the others. Every algorithm is a sequence of such steps, and all ranks take the same sequence.
///
/// Why `depth` = 4 slots per rank suffice: an algorithm reads what was published in step q before it publishes step
/// q + 2. It fills the slot of step s only after it has seen every rank publish s - 2. By then all ranks have read step
/// s - 4, so its slot is free. A rank may therefore be two steps ahead of another that it does not read.
///
/// A rank that leaves operations early compares a step's cells later. It publishes step s only after every rank has
/// published s - `lead`, and after it has compared all steps up to there. So when it fills the cell and the small slot
/// of step s, all ranks have compared step s - 2 `lead`, whose place s takes: that is why there are 2 `lead` of them.
/// It fills slots only when it has compared all steps.
///
/// Such a rank publishes nothing because of an error that it finds late. It finishes its operation for the others and
/// throws then. Every rank compares all cells of all steps, so each finds the same error by itself.
///
/// An operation between machines whose bytes take another way is one quiet step (see quiet_steps). Its cells go to
/// other machines only where somebody asks for them. Usually nobody does: what each rank sends to all others has a hash
/// of its call.
class lockstep {
  friend class quiet_steps;

 public:
  explicit lockstep(std::shared_ptr<const shared_memory_health> watch)
      : health_(std::move(watch)), memory_(health_->memory()), rank_(health_->rank()) {}
  lockstep(const lockstep&) = delete;
  lockstep& operator=(const lockstep&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return memory_.sizes().ranks; }
  [[nodiscard]] std::uint64_t operations() const noexcept { return operations_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }
  /// Returns whether all ranks are known to have published some step, and with it what they know from the beginning.
  [[nodiscard]] bool all_have_published() const noexcept { return verified_ != 0; }
  [[nodiscard]] const layout::dimensions& sizes() const noexcept { return memory_.sizes(); }

  [[nodiscard]] layout::flag_cell& cell(int rank, std::uint64_t step) const noexcept {
    return memory_.cell(rank, step);
  }
  [[nodiscard]] std::byte* slot(int rank, std::uint64_t step) const noexcept { return memory_.slot(rank, step); }
  [[nodiscard]] std::byte* small_slot(int rank, std::uint64_t step) const noexcept {
    return memory_.small_slot(rank, step);
  }
  [[nodiscard]] std::byte* result(int rank, std::uint64_t step) const noexcept { return memory_.result(rank, step); }

  [[nodiscard]] const group_memory& memory() const noexcept { return memory_; }

  /// Starts an operation. Where this rank left earlier ones without waiting, it waits here for their ranks and checks
  /// them. An error found that way is announced as this operation's failure, so that no rank waits in vain. With
  /// `leaves_early` it waits only where it is too far ahead, and keeps the error for `finish`.
  void begin(const operation& call, bool leaves_early = false) {
    operations_.store(operations() + 1, std::memory_order_relaxed);
    catch_up(call, leaves_early);
  }

  /// Throws what `begin` would throw, for an operation that is published later. Publishing it will then not wait.
  void prepare(const operation& call) {
    operations_.store(operations() + 1, std::memory_order_relaxed);
    catch_up(call, may_leave(call));
    operations_.store(operations() - 1, std::memory_order_relaxed);
  }

  /// Returns whether this rank may leave a small operation early. Across machines no rank does.
  [[nodiscard]] bool may_leave(const operation& call) const noexcept {
    return call.may_leave(rank_) && !sizes().spans_machines();
  }

  /// Returns whether the slot of the next step is free, also for a rank that leaves operations early.
  [[nodiscard]] bool has_free_slot() const noexcept { return verified_ == step_; }

  /// Ends an operation that was begun with `leaves_early`: throws the error of an earlier one, if it was found.
  void finish() {
    if (late_error_) {
      std::rethrow_exception(std::exchange(late_error_, nullptr));
    }
  }

  /// Has the root's lists of the current step compared when its cells are (see check_root_lists).
  void check_lists_later() noexcept { with_lists_.set(step_, true); }

  /// Waits for the operations before this one, whose first step is published, and checks them. For an operation that
  /// was begun with `leaves_early`, and which turns out to be a longer one. `finish` throws an error found here.
  void settle_earlier(const operation& call) {
    wait_for_step(call, step_ - 1);
    check_up_to(call, step_ - 1);
    verified_ = step_ - 1;
  }

  /// The reader of a part of a slot that all ranks read.
  static constexpr int everyone = step_waiter::everyone;

  /// Names a part of the slot that is published next, and the rank that reads it. Parts that nobody names do not go to
  /// other machines. Parts behind the slot's bytes are those of the result.
  void note_part(std::size_t offset, std::size_t bytes, int reader = everyone) {
    parts_.add(next(), offset, bytes, reader);
  }

  /// Publishes this rank's next step, whose slot and cell payload the caller has filled (see `next`). Other machines
  /// need not know of a `quiet` one.
  void publish(const operation& call, const std::string* failure = nullptr, bool quiet = false) {
    const std::uint64_t step = step_ + 1;
    layout::flag_cell& mine = cell(rank_, step);
    mine.signature.store(call.signature(), std::memory_order_relaxed);
    mine.bytes.store(call.bytes, std::memory_order_relaxed);
    mine.what.store(pack_call(call, failure != nullptr) | (quiet ? quiet_call : 0), std::memory_order_relaxed);
    mine.tag.store(call.tag, std::memory_order_relaxed);
    if (call.op == reduce_kind::premultiplied_sum) {
      mine.factor.store(call.factor, std::memory_order_relaxed);
    }
    mine.site.store(sites_.index_of(call, block(rank_).sites) | name_part(call), std::memory_order_relaxed);
    mine.sequence.store(static_cast<std::uint32_t>(operations()), std::memory_order_relaxed);
    reported_.set(step, failure != nullptr);
    with_lists_.set(step, false);
    if (failure != nullptr) {
      memory_.write_failure(rank_, step, *failure);
    }
    parts_.complete(step);
    step_ = step;
    // Sequentially consistent, as are the sleepers' steps: either we see the sleeper or it sees this step.
    mine.step.store(step, std::memory_order_seq_cst);
    if (header().sleepers.load(std::memory_order_seq_cst) != 0 &&
        (block(rank_).awaited.load() != 0 || all_have_come(step_))) {
      memory_.wake();
    }
    if (!quiet || header().changes.wanted.load() >= step) {
      memory_.note_step(rank_);
    }
  }

  /// Asks the other machines for the steps up to this rank's, of their ranks that come later, too.
  void ask() const noexcept {
    header().changes.asked.store(step_);
    memory_.note_step(rank_);
  }

  /// Returns the step that `publish` will publish.
  [[nodiscard]] std::uint64_t next() const noexcept { return step_ + 1; }

  /// Waits until every rank has published the current step.
  void wait_all(const operation& call) { wait_all(call, step_); }

  /// Waits until every rank has published `step`, this one or an earlier one.
  void wait_all(const operation& call, std::uint64_t step) {
    if (step > verified_) {
      wait_for_step(call, step);
      verified_ = step;
    }
  }

  /// Waits for one rank's current step. It is not checked, because an earlier step of the same operation has been.
  void wait_for_unchecked(const operation& call, int source) {
    wait(call, source, step_, [&]() noexcept { return has_come(source, step_); });
  }

  /// Waits for one rank's current step and checks it. A later operation waits for the other ranks.
  void wait_for(const operation& call, int source) {
    wait_for_unchecked(call, source);
    try {
      checks_.check_source([&] { return context(call); }, source, step_);
    } catch (...) {
      reported_.set(step_, true);
      throw;
    }
  }

  /// Compares an operation's first step over all ranks. All ranks see the same cells, so all come to the same verdict
  /// without a further exchange.
  void check(const operation& call) { check(call, step_); }

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
  void gather_factors(const operation& call, detail::plain_list<double>& factors) const {
    factors.clear();
    for (int source = 0; call.op == reduce_kind::premultiplied_sum && source < size(); ++source) {
      factors.push_back(cell(source, step_).factor.load(std::memory_order_relaxed));
    }
  }

  void cancel() noexcept { waiter_.cancel(); }

  /// Returns whether the job has more ranks on this machine than cores.
  [[nodiscard]] bool shares_cores() const noexcept { return waiter_.shares_cores(); }

  void set_yields_core(bool yields) noexcept { waiter_.set_yields_core(yields); }
  [[gnu::always_inline]] void set_caller(caller_state state) noexcept { waiter_.set_caller(state); }

  [[nodiscard]] error_context context(const operation& call) const {
    return {rank_, size(), call_name(call), operations(), call.where};
  }

  /// Describes what `rank` called in the step that this rank published last, and that all have published.
  [[nodiscard]] std::string matching_call(int rank) const {
    ask();
    for (int turn = 0; !has_come(rank, step_) && turn < 1000; ++turn) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
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

  [[nodiscard]] bool all_have_come(std::uint64_t step) const noexcept {
    for (int rank = 0; rank < size(); ++rank) {
      if (!has_come(rank, step)) {
        return false;
      }
    }
    return true;
  }

  /// Waits until every rank has published `step`, whose cells may have to be compared yet.
  void wait_for_step(const operation& call, std::uint64_t step) {
    int rank = 0;
    wait(call, everyone, step, [&]() noexcept {
      for (; rank < size(); ++rank) {
        if (call.bytes > layout::first_line_bytes) {  // both lines of the cell come from the other core at a time
          __builtin_prefetch(cell(rank, step).payload + layout::first_line_bytes);
        }
        if (!has_come(rank, step)) {
          return false;
        }
      }
      return true;
    });
  }

  void check(const operation& call, std::uint64_t step) const {
    if (!reported_.has(step)) {
      const auto here = [&] { return context(call); };
      checks_.check_all(here, step);
      if (with_lists_.has(step)) {
        check_root_lists(here, memory_, root_of(cell(rank_, step)), step);
      }
    }
  }

  void catch_up(const operation& call, bool leaves_early) {
    if (!health_->in_creating_process()) {
      detail::throw_error<usage_error>(context(call),
                                       {"this group was made before a fork; the child process is not a rank of it"});
    }
    if (waiter_.is_cancelled()) {
      detail::throw_error<engine_error>(context(call),
                                        {"cancelled: this rank is destroying the group or the object that uses it"});
    }
    throw_if_broken(call);
    memory_.block(rank_).caller.store(rendezvous::this_thread(), std::memory_order_relaxed);
    if (leaves_early) {
      check_arrived(call);
      return;
    }
    if (verified_ < step_) {
      if (sizes().spans_machines()) {
        ask();
      }
      wait_for_step(call, step_);
      check_up_to(call, step_);
    }
    if (late_error_) {
      try {
        finish();
      } catch (const error& problem) {
        const std::string text = detail::concat({"an earlier operation of this rank failed: ", problem.detail()});
        publish(call, &text);
        throw;
      }
    }
  }

  /// Checks the steps that all ranks have published by now. Waits where this rank would be too far ahead: then until
  /// it can go on for a while, because each wait may cost a change of the core's rank.
  void check_arrived(const operation& call) {
    if (next() - verified_ > layout::lead) {
      wait_for_step(call, next() - layout::lead / 2);
    }
    std::uint64_t last = verified_;
    while (last < step_ && all_have_come(last + 1)) {
      ++last;
    }
    check_up_to(call, last);
  }

  /// Checks the steps up to `last`, which all ranks have published. Stops at the first error and keeps it.
  void check_up_to(const operation& call, std::uint64_t last) {
    const auto is_too_far_ahead = [&] { return next() - verified_ > layout::lead; };
    while (verified_ < last && (!late_error_ || is_too_far_ahead())) {
      ++verified_;
      try {
        check(call, verified_);
      } catch (const error&) {
        late_error_ = late_error_ ? late_error_ : std::current_exception();
      }
    }
  }

  /// A set of the steps that may be under way.
  class step_set {
   public:
    [[nodiscard]] bool has(std::uint64_t step) const noexcept { return (bits_ >> step % layout::cell_count & 1) != 0; }
    void set(std::uint64_t step, bool is) noexcept {
      const std::uint64_t bit = std::uint64_t{1} << step % layout::cell_count;
      bits_ = is ? bits_ | bit : bits_ & ~bit;
    }

   private:
    static_assert(layout::cell_count == 64);
    std::uint64_t bits_ = 0;
  };

  template <class Arrived>
  void wait(const operation& call, int source, std::uint64_t step, Arrived&& arrived) {
    waiter_.wait(call, operations(), {.rank = source, .step = step}, arrived);
  }

  [[nodiscard]] bool has_come(int rank, std::uint64_t step) const noexcept { return waiter_.has_come(rank, step); }

  std::shared_ptr<const shared_memory_health> health_;
  const group_memory& memory_;
  int rank_;
  step_waiter waiter_{*health_};
  site_table sites_;
  std::atomic<std::uint64_t> operations_{0};  // atomic for a second thread that is refused and says so
  named_parts parts_{memory_, rank_};
  cell_checks checks_{*health_};
  std::uint64_t step_ = 0;         // the last step this rank published
  std::uint64_t verified_ = 0;     // the last step that all ranks have published, and that needs no further check
  step_set reported_;              // steps whose failure this rank has already reported or caused
  step_set with_lists_;            // steps in which the root's lists have to be compared, too
  std::exception_ptr late_error_;  // of an operation that this rank left early
};

}  // namespace hfcomm::engines
