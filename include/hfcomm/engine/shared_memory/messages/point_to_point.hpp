// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/shared_memory/messages/message_progress.hpp>
#include <hfcomm/machine/waiting.hpp>
#include <hfcomm/machine/work_queue.hpp>
#include <hfcomm/machine/worker.hpp>

namespace hfcomm::engines {

/// Messages between two ranks of a group, independent of its collectives.
///
/// A sender offers a message in one of its envelopes. The receiver looks for an offer that fits what it wants, and
/// answers. A small message is in the envelope. The bytes of a larger one then pass through one of the sender's slots,
/// a ring that one side fills and the other drains. Both sides finish when the receiver has everything. Both fail where
/// the message is not what the receiver wants.
///
/// A thread that waits moves on all messages of this rank, and decodes them; a decoder must not wait for another
/// message. A worker, started with the first message that may have to do without, moves on what no thread waits for.
/// Once a thread has waited, it comes a moment later, or when it is called: it would only get in the way of threads
/// that post messages and wait for them next. Continuations run on other threads, for as long as they need; that of an
/// awaited transfer on the thread that waits for it. Any thread may call.
class point_to_point {
 public:
  [[gnu::cold]] explicit point_to_point(std::shared_ptr<const shared_memory_health> watch)
      : brief_wait_(detail::spin_limits::of(!watch->shares_cores())), progress_(std::move(watch)) {}
  point_to_point(const point_to_point&) = delete;
  point_to_point& operator=(const point_to_point&) = delete;

  void abandon(const error_context& context) noexcept { health().abandon(context); }
  [[nodiscard]] bool is_broken() const noexcept { return health().is_broken(); }
  [[nodiscard]] bool in_creating_process() const noexcept { return health().in_creating_process(); }

  /// Starts transfers, in this order. Throws usage_error in the child of a fork, and engine_error where the worker
  /// cannot be started; then no transfer was started. Other errors are kept in the transfers.
  static void post(const std::shared_ptr<point_to_point>& self, std::span<const std::shared_ptr<transfer>> transfers) {
    const operation& first = transfers.front()->call;
    self->require_creating_process(first);
    const bool needs_worker =
        std::any_of(transfers.begin(), transfers.end(), [](const auto& one) { return one->listener != nullptr; });
    finished_transfers finished;
    bool wakes_worker = false;
    bool others_wait = false;
    {
      const auto held = self->worker_.lock();
      if (needs_worker) {
        self->worker_.start(held, self->endpoint().context(first, 0), "messages", [self] { self->run_worker(); });
      }
      self->progress_.add(transfers);
      self->progress_.advance(finished);
      wakes_worker = self->rouses_worker();
      others_wait = self->waiting_threads_ != 0;
    }
    if (wakes_worker) {
      self->worker_.wake();
    }
    self->report_finished(finished, others_wait);
  }

  /// Waits until all of them are finished. Their errors stay in the transfers. Runs their continuations, if this thread
  /// finishes them. Without any, it calls the worker.
  void complete(std::span<const std::shared_ptr<transfer>> transfers) {
    if (transfers.empty()) {
      {
        const auto held = worker_.lock();
        waits_seen_ = begun_waits_;
      }
      worker_.wake();
      return;
    }
    listener_list continued;
    {
      const waiting_thread waits(*this);
      finish_all(transfers, continued);
    }
    for (const auto& listener : continued) {
      listener->continue_caller();
    }
  }

  /// Looks once whether a probe can finish, and keeps nothing of it. Returns whether it has finished.
  [[nodiscard]] bool try_probe(const std::shared_ptr<transfer>& one) {
    require_creating_process(one->call);
    {
      const auto held = worker_.lock();
      progress_.add({&one, 1});
    }
    advance();
    const auto held = worker_.lock();
    progress_.take_back(*one);
    return one->finished.load();
  }

  /// Ends a receive that no message has matched yet with cancelled_error. Returns whether it did.
  [[nodiscard]] bool withdraw(const transfer& one) {
    require_creating_process(one.call);
    finished_transfers finished;
    bool is_withdrawn = false;
    {
      const auto held = worker_.lock();
      is_withdrawn = progress_.withdraw(one, finished);
    }
    report_finished(finished, true);
    return is_withdrawn;
  }

  /// Makes every transfer fail, those under way and those to come.
  void cancel() noexcept {
    progress_.cancel();
    notify_own_threads();
  }

  /// Ends the messages when the group ends. Unfinished works keep their group, so there are none, unless it is broken.
  /// The text of a failure that no rank has taken is dropped.
  [[gnu::cold]] void stop() noexcept {
    if (!in_creating_process()) {
      return;  // the child of a fork has no worker, and the lock may be held for ever
    }
    if (is_broken()) {
      advance();  // finishes the transfers that somebody may wait for
    }
    worker_.request_stop();
    std::shared_ptr<detail::work_queue> continuations;
    {
      const auto held = worker_.lock();
      continuations = std::move(continuations_);
    }
    if (continuations) {
      continuations->drain();
      continuations->stop();
    }
    notify_own_threads();
    worker_.stop();  // on the worker's thread where a continuation has dropped the last handle
  }

 private:
  using clock = pending_message::clock;
  using transfer_list = std::span<const std::shared_ptr<transfer>>;
  using listener_list = std::vector<std::shared_ptr<transfer_listener>>;

  /// A thread that waits for transfers, and moves on all of them. The worker would only be in its way.
  class waiting_thread {
   public:
    explicit waiting_thread(point_to_point& messages) : messages_(messages) {
      const auto held = messages_.worker_.lock();
      ++messages_.waiting_threads_;
      ++messages_.begun_waits_;
    }
    waiting_thread(const waiting_thread&) = delete;
    waiting_thread& operator=(const waiting_thread&) = delete;
    ~waiting_thread() {
      bool wakes_worker = false;
      {
        const auto held = messages_.worker_.lock();
        --messages_.waiting_threads_;
        wakes_worker = messages_.rouses_worker();
      }
      if (wakes_worker) {
        messages_.worker_.wake();
      }
    }

   private:
    point_to_point& messages_;
  };

  /// Returns whether transfers are under way that no thread moves on. The caller holds the lock.
  [[nodiscard]] bool needs_worker() const noexcept { return progress_.has_unattended() && waiting_threads_ == 0; }
  /// Returns whether the worker is to be woken, as it sleeps and transfers need it. The caller holds the lock.
  [[nodiscard]] bool rouses_worker() noexcept { return needs_worker() && std::exchange(is_asleep_, false); }

  static constexpr std::chrono::milliseconds check_interval{20};
  // A nap is short, as a message may wait for the worker, and gets longer while threads wait for all there is.
  static constexpr std::chrono::microseconds shortest_nap{100};
  static constexpr std::chrono::microseconds longest_nap{400};

  [[nodiscard]] const message_endpoint& endpoint() const noexcept { return progress_.endpoint(); }
  [[nodiscard]] const shared_memory_health& health() const noexcept { return endpoint().health(); }
  void require_creating_process(const operation& call) const {
    if (!in_creating_process()) {
      detail::throw_error<usage_error>(endpoint().context(call, 0),
                                       {"this group was made before a fork; the child process is not a rank of it"});
    }
  }
  void notify_own_threads() const noexcept { endpoint().memory().notify(endpoint().rank()); }

  /// Waits until all of them are finished. Adds the listeners of those that this thread has finished and that have a
  /// continuation.
  void finish_all(transfer_list transfers, listener_list& continued) {
    for (const auto& one : transfers) {
      one->awaited.store(true);
    }
    const auto all_finished = [&] {
      return std::all_of(transfers.begin(), transfers.end(), [](const auto& one) { return one->finished.load(); });
    };
    bool has_slept = false;  // a rank that has waited long does not wait awake again
    while (!all_finished()) {
      const std::uint32_t epoch = endpoint().box().epoch.load();
      if (advance(transfers, &continued)) {
        has_slept = false;
      } else if (!all_finished()) {
        const auto has_changed = [&]() noexcept { return endpoint().box().epoch.load() != epoch; };
        if (has_slept || !brief_wait_.wait_briefly(has_changed)) {
          sleep_until_change(epoch);
          has_slept = true;
        }
      }
    }
  }

  /// Waits until transfers are under way that no thread moves on, and the worker is called, or no thread has waited for
  /// the length of a nap. Returns false once the worker is to stop.
  [[nodiscard]] bool wait_until_needed(detail::worker::held_lock& held) {
    auto nap = shortest_nap;
    while (!needs_worker() || waits_seen_ != begun_waits_) {
      if (!needs_worker() && (waits_seen_ == begun_waits_ || nap == longest_nap)) {
        is_asleep_ = true;
        if (!worker_.wait_for_work(held, [this] { return !is_asleep_; })) {
          return false;
        }
        nap = shortest_nap;
        continue;
      }
      const auto begun_before = begun_waits_;
      if (!worker_.wait_for_interval(held, nap)) {
        return false;
      }
      waits_seen_ = begun_waits_ == begun_before && waiting_threads_ == 0 ? begun_before : waits_seen_;
      nap = std::min(2 * nap, longest_nap);
    }
    return true;
  }

  void run_worker() {
    while (true) {
      const std::uint32_t epoch = endpoint().box().epoch.load();
      {
        auto held = worker_.lock();
        if (!wait_until_needed(held)) {
          return;
        }
      }
      if (!advance()) {
        sleep_until_change(epoch);
      }
    }
  }

  /// Moves on all transfers, and checks their peers at intervals. Returns whether anything was done. See
  /// `report_finished`.
  bool advance(transfer_list own = {}, listener_list* continued = nullptr) {
    finished_transfers finished;
    bool moved = false;
    bool others_wait = false;
    {
      const auto held = worker_.lock();
      others_wait = waiting_threads_ > (own.empty() ? 0 : 1);
      const auto now = progress_.update_time();
      moved = progress_.advance(finished);
      if (now >= next_check_) {
        next_check_ = now + check_interval;
        progress_.check_peers(finished);
      }
    }
    report_finished(finished, others_wait, own, continued);
    return moved || !finished.empty();
  }

  /// Tells the listeners of finished transfers, and wakes the threads that wait for one. The listeners of `own` that
  /// have a continuation are added to `continued`.
  void report_finished(const finished_transfers& finished, bool others_wait, transfer_list own = {},
                       listener_list* continued = nullptr) {
    if (finished.empty()) {
      return;
    }
    for (const auto& one : finished) {
      const auto listener = std::exchange(one->listener, nullptr);
      if (!listener || !listener->on_finish()) {
        continue;
      }
      if (std::find(own.begin(), own.end(), one) != own.end()) {
        continued->push_back(listener);
      } else {
        run_continuation([listener] { listener->continue_caller(); });
      }
    }
    if (others_wait) {
      notify_own_threads();
    }
  }

  /// Runs the continuation of a transfer on a thread that the messages do not need.
  void run_continuation(const std::function<void()>& continuation) {
    std::shared_ptr<detail::work_queue> queue;
    {
      const auto held = worker_.lock();
      if (!continuations_) {
        continuations_ = std::make_shared<detail::work_queue>([] {});
      }
      queue = continuations_;
    }
    try {
      queue->push([continuation] { return continuation; });
    } catch (const std::system_error&) {
      continuation();  // the system has no other thread for it
    }
  }

  /// Sleeps until the mailbox has changed since `epoch`, or for one check interval.
  void sleep_until_change(std::uint32_t epoch) {
    layout::mailbox& box = endpoint().box();
    box.sleepers.fetch_add(1);
    if (box.epoch.load() == epoch) {
      detail::futex_wait(box.epoch, epoch, check_interval);
    }
    box.sleepers.fetch_sub(1);
  }

  detail::learning_wait brief_wait_;
  message_progress progress_;
  std::shared_ptr<detail::work_queue> continuations_;  // once a continuation waits for a transfer
  clock::time_point next_check_{};
  int waiting_threads_ = 0;
  std::uint64_t begun_waits_ = 0;
  std::uint64_t waits_seen_ = 0;  // begun ones that are no reason for the worker to hold back
  bool is_asleep_ = false;        // the worker, until transfers need it
  detail::worker worker_;         // protects the members before it, except brief_wait_
};

}  // namespace hfcomm::engines
