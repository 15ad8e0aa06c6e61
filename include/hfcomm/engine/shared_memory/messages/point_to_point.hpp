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
/// message. A worker, started with the first one, does that while no thread waits. Continuations run on other threads,
/// for as long as they need; that of an awaited transfer on the thread that waits for it. Any thread may call.
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
    {
      const auto held = self->worker_.lock();
      if (needs_worker) {
        self->worker_.start(held, self->endpoint().context(first, 0), "messages", [self] { self->run_worker(); });
      }
      self->progress_.add(transfers);
      self->progress_.advance(finished);
    }
    if (needs_worker) {
      self->worker_.wake();
    }
    self->report_finished(finished);
  }

  /// Waits until all of them are finished. Their errors stay in the transfers. Runs their continuations, if this thread
  /// finishes them.
  void complete(std::span<const std::shared_ptr<transfer>> transfers) {
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
    report_finished(finished);
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
    }
    waiting_thread(const waiting_thread&) = delete;
    waiting_thread& operator=(const waiting_thread&) = delete;
    ~waiting_thread() {
      bool needs_worker = false;
      {
        const auto held = messages_.worker_.lock();
        --messages_.waiting_threads_;
        needs_worker = messages_.needs_worker();
      }
      if (needs_worker) {
        messages_.worker_.wake();
      }
    }

   private:
    point_to_point& messages_;
  };

  /// Returns whether transfers are under way that no thread moves on. The caller holds the lock.
  [[nodiscard]] bool needs_worker() const noexcept { return progress_.has_unattended() && waiting_threads_ == 0; }

  static constexpr std::chrono::milliseconds check_interval{20};

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
        }
        has_slept = true;
      }
    }
  }

  void run_worker() {
    while (true) {
      const std::uint32_t epoch = endpoint().box().epoch.load();
      {
        auto held = worker_.lock();
        if (!worker_.wait_for_work(held, [this] { return needs_worker(); })) {
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
    {
      const auto held = worker_.lock();
      moved = progress_.advance(finished);
      if (const auto now = clock::now(); now >= next_check_) {
        next_check_ = now + check_interval;
        progress_.check_peers(finished);
      }
    }
    report_finished(finished, own, continued);
    return moved || !finished.empty();
  }

  /// Tells the listeners of finished transfers, and wakes the threads that wait for one. The listeners of `own` that
  /// have a continuation are added to `continued`.
  void report_finished(const finished_transfers& finished, transfer_list own = {}, listener_list* continued = nullptr) {
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
    notify_own_threads();
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
  detail::worker worker_;  // protects the members before it, except brief_wait_
};

}  // namespace hfcomm::engines
