// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <hfcomm/engine/shared_memory/inbox.hpp>
#include <hfcomm/engine/shared_memory/outbox.hpp>
#include <hfcomm/machine/waiting.hpp>
#include <hfcomm/machine/work_queue.hpp>
#include <hfcomm/machine/worker.hpp>

namespace hfcomm::engines {

/// Messages between two ranks of a group, beside its collectives and independent of them.
///
/// A sender offers a message in one of its envelopes; the receiver looks for offers that fit what it wants, and
/// answers. A small message is in the envelope; the bytes of a larger one then pass through one of the sender's slots,
/// a ring that one side fills and the other drains. Both sides finish when the receiver has everything, or both fail
/// where the message is not what the receiver wants.
///
/// Whoever waits moves on everything that this rank has under way; for transfers that nobody waits for there is a
/// thread, started with the first one. What goes on after them runs on other threads, for as long as it likes. Any
/// thread may call.
class point_to_point {
 public:
  explicit point_to_point(std::shared_ptr<const group_watch> watch)
      : patience_(detail::patience::of(!watch->shares_cores())), endpoint_(std::move(watch)) {}
  point_to_point(const point_to_point&) = delete;
  point_to_point& operator=(const point_to_point&) = delete;

  void abandon(const error_context& context) noexcept { endpoint_.watch().abandon(context); }
  [[nodiscard]] bool broken() const noexcept { return endpoint_.watch().broken(); }
  [[nodiscard]] bool in_creating_process() const noexcept { return endpoint_.watch().in_creating_process(); }

  /// Starts transfers, in this order. Throws usage_error in the child of a fork, and engine_error where the thread
  /// cannot be started: then no transfer was. Everything else is the transfers'.
  static void post(const std::shared_ptr<point_to_point>& self, std::span<const std::shared_ptr<transfer>> transfers) {
    if (!self->in_creating_process()) {
      throw usage_error(self->endpoint_.context(transfers.front()->call, 0),
                        "this group was made before a fork; the child process is not a rank of it");
    }
    message_list outgoing;
    message_list incoming;
    std::size_t unattended = 0;
    for (const auto& one : transfers) {
      (one->call.pattern == movement::send ? outgoing : incoming).push_back({.job = one, .active = clock::now()});
      unattended += one->listener ? 1 : 0;
    }
    finished_transfers finished;
    {
      const auto held = self->worker_.lock();
      if (unattended != 0) {
        self->worker_.start(self->endpoint_.context(transfers.front()->call, 0), "messages", [self] { self->work(); });
        self->unattended_ += unattended;
      }
      for (auto* fresh : {&outgoing, &incoming}) {
        for (pending_message& one : *fresh) {
          one.number = ++self->messages_;
        }
      }
      self->outbox_.entries().splice(self->outbox_.entries().end(), outgoing);
      self->inbox_.entries().splice(self->inbox_.entries().end(), incoming);
      self->progress(finished);
    }
    if (unattended != 0) {
      self->worker_.wake();
    }
    self->report_finished(finished);
  }

  /// Waits until all of them are finished; their problems are theirs.
  void complete(std::span<const std::shared_ptr<transfer>> transfers) {
    const auto done = [&] {
      return std::all_of(transfers.begin(), transfers.end(), [](const auto& one) { return one->finished.load(); });
    };
    while (!done()) {
      const std::uint32_t epoch = endpoint_.box().epoch.load();
      if (!advance() && !done()) {
        wait_for_change(epoch, patience_);
      }
    }
  }

  /// Makes everything that is under way, and all that comes, fail.
  void cancel() noexcept {
    cancelled_.store(true);
    endpoint_.memory().notify(endpoint_.rank());
  }

  /// The group's end. Works that are not finished keep their group, so there are none, unless it is broken; a failure's
  /// text that nobody has taken is dropped.
  void stop() noexcept {
    if (!in_creating_process()) {
      return;  // in the child of a fork there is no thread, and nobody who would unlock the mutex
    }
    if (broken()) {
      advance();  // whoever waits for a transfer must hear of it
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
    endpoint_.memory().notify(endpoint_.rank());  // the thread may sleep there
    worker_.stop();                               // called on it where a continuation has dropped the last handle
  }

 private:
  using clock = pending_message::clock;

  static constexpr std::chrono::milliseconds check_interval{20};

  void work() {
    while (true) {
      const std::uint32_t epoch = endpoint_.box().epoch.load();
      {
        auto held = worker_.lock();
        if (!worker_.wait_for_work(held, [this] { return unattended_ != 0; })) {
          return;
        }
      }
      if (!advance()) {
        wait_for_change(epoch, detail::patience{});
      }
    }
  }

  /// Moves on what can be moved on, and looks for lost ranks now and then; whether anything was done.
  bool advance() {
    finished_transfers finished;
    bool moved = false;
    {
      const auto held = worker_.lock();
      moved = progress(finished);
      if (const auto now = clock::now(); now >= next_check_) {
        next_check_ = now + check_interval;
        check_peers(finished, now);
      }
    }
    report_finished(finished);
    return moved || !finished.empty();
  }

  /// Tells everybody what is finished: first those who wait for it, then what goes on after it.
  void report_finished(const finished_transfers& finished) {
    if (finished.empty()) {
      return;
    }
    for (const auto& one : finished) {
      if (const auto listener = std::exchange(one->listener, nullptr); listener && listener->on_finish()) {
        run_continuation([listener] { listener->continue_caller(); });
      }
    }
    endpoint_.memory().notify(endpoint_.rank());  // another thread may wait for what this one has finished
  }

  /// Runs what waited for a transfer, on a thread that the messages do not need.
  void run_continuation(const std::function<void()>& then) {
    std::shared_ptr<detail::work_queue> queue;
    {
      const auto held = worker_.lock();
      if (!continuations_) {
        continuations_ = std::make_shared<detail::work_queue>([] {});
      }
      queue = continuations_;
    }
    try {
      queue->push([then] { return then; });
    } catch (const std::system_error&) {
      then();  // there is no other thread; better here than never
    }
  }

  void wait_for_change(std::uint32_t epoch, const detail::patience& patience) {
    layout::mailbox& box = endpoint_.box();
    if (detail::wait_briefly(patience, [&]() noexcept { return box.epoch.load() != epoch; })) {
      return;
    }
    box.sleepers.fetch_add(1);
    if (box.epoch.load() == epoch) {
      detail::futex_wait(box.epoch, epoch, check_interval);
    }
    box.sleepers.fetch_sub(1);
  }

  /// One step of every transfer; whether there was any.
  bool progress(finished_transfers& finished) {
    const std::size_t before = finished.size();
    bool any = false;
    if (endpoint_.watch().broken() || cancelled_.load()) {
      fail_everything(finished);
    } else {
      any = outbox_.progress(finished);
      any = inbox_.progress(finished) || any;
    }
    count_finished(finished, before);
    return any;
  }

  void count_finished(const finished_transfers& finished, std::size_t from) noexcept {
    for (; from < finished.size(); ++from) {
      unattended_ -= finished[from]->listener ? 1 : 0;
    }
  }

  /// The ranks that a transfer waits for.
  [[nodiscard]] std::vector<int> awaited_ranks(const pending_message& one) const {
    const int root = one.peer >= 0 ? one.peer : one.job->call.root;
    std::vector<int> ranks;
    for (int rank = 0; rank < endpoint_.size(); ++rank) {
      if (root >= 0 ? rank == root : rank != endpoint_.rank() || endpoint_.size() == 1) {
        ranks.push_back(rank);
      }
    }
    return ranks;
  }

  /// Has anyone who is waited for gone, or has it been too long?
  void check_peers(finished_transfers& finished, clock::time_point now) {
    drop_notices(finished);
    std::vector<bool> alive(static_cast<std::size_t>(endpoint_.size()) + 1);  // the last one: whoever may send to us
    for (auto* box : {&outbox_.entries(), &inbox_.entries()}) {
      for (pending_message& one : *box) {
        if (one.job->is_failure) {
          continue;
        }
        const auto missing = awaited_ranks(one);
        const int root = one.peer >= 0 ? one.peer : one.job->call.root;
        const auto place = static_cast<std::size_t>(root >= 0 ? root : endpoint_.size());
        const auto lost = alive[place] ? std::nullopt : loss_for(root, missing);
        alive[place] = !lost;
        const auto idle_since = box == &outbox_.entries() ? outbox_.idle_since(one) : inbox_.idle_since(one);
        const auto waited = now - idle_since;
        const auto limit = one.job->call.timeout;
        if (lost || (limit.count() > 0 && waited >= limit)) {
          // They may have sent or taken it at the last moment.
          if (!progress(finished) && !endpoint_.watch().broken() && !cancelled_.load()) {
            give_up(one, lost, missing);
            progress(finished);
          }
          return;
        }
        if (!one.warned && waited >= warn_after_) {
          one.warned = true;
          endpoint_.watch().warn(endpoint_.context(one), missing, waited);
        }
      }
    }
  }

  /// A failure's text that nobody can take any more is no reason to break the group.
  void drop_notices(finished_transfers& finished) {
    const std::size_t before = finished.size();
    for (pending_message& one : outbox_.entries()) {
      if (one.job->is_failure && endpoint_.watch().ending(one.job->call.root)) {
        outbox_.give_up(one);
      }
    }
    message_endpoint::sweep(outbox_.entries(), finished);
    count_finished(finished, before);
  }

  /// The rank because of which no message will come from, or go to, `root` (-1: anyone).
  [[nodiscard]] std::optional<group_watch::loss> loss_for(int root, const std::vector<int>& missing) const {
    auto lost = endpoint_.watch().find_loss(missing, [](int) { return false; });
    if (!lost || root >= 0 || lost->end.how != group_watch::kind::left) {
      return lost;
    }
    // From anyone: as long as one is there, it may come.
    const bool all_left = std::all_of(missing.begin(), missing.end(),
                                      [&](int rank) { return endpoint_.watch().ending(rank).has_value(); });
    return all_left ? lost : std::nullopt;
  }

  /// Breaks the group.
  void give_up(const pending_message& one, const std::optional<group_watch::loss>& lost,
               const std::vector<int>& missing) {
    try {
      if (lost) {
        endpoint_.watch().break_group(endpoint_.context(one), *lost);
      }
      endpoint_.watch().break_group(endpoint_.context(one), missing, timeout_text(one, missing));
    } catch (const error&) {
      // The transfers get the verdict each with its own context: see fail_everything.
    }
  }

  [[nodiscard]] std::string timeout_text(const pending_message& one, const std::vector<int>& missing) const {
    const operation& call = one.job->call;
    const bool sends = call.pattern == movement::send;
    std::string text = list_ranks(missing) + (sends ? " did not take" : " did not send") + " the message of " +
                       call_name(call) + " #" + std::to_string(one.number) + " (" + detail::describe(call.where) +
                       ") with tag " + std::to_string(call.tag) + " within " + format_duration(call.timeout) +
                       ", so rank " + std::to_string(endpoint_.rank()) + " gave up.";
    if (!sends) {
      text += inbox_.unwanted();  // often the explanation
    } else if (one.envelope == nullptr) {
      text += " It was not offered yet: " + std::to_string(layout::envelope_count) +
              " earlier messages of this rank have not been received.";
    }
    return text;
  }

  void fail_everything(finished_transfers& finished) {
    for (auto* box : {&outbox_.entries(), &inbox_.entries()}) {
      for (pending_message& one : *box) {
        try {
          if (endpoint_.watch().broken()) {
            endpoint_.watch().throw_verdict(endpoint_.context(one));
          }
          throw engine_error(endpoint_.context(one), "the group is being closed");
        } catch (...) {
          message_endpoint::finish(one, std::current_exception());
        }
      }
      message_endpoint::sweep(*box, finished);
    }
  }

  detail::patience patience_;
  std::chrono::milliseconds warn_after_ = detail::warning_time();
  std::atomic<bool> cancelled_{false};

  message_endpoint endpoint_;  // what its const functions tell needs no lock
  outbox outbox_{endpoint_};
  inbox inbox_{endpoint_};
  std::uint64_t messages_ = 0;
  std::size_t unattended_ = 0;                         // transfers under way that the worker has to see to
  std::shared_ptr<detail::work_queue> continuations_;  // once something waits for a transfer
  clock::time_point next_check_{};
  detail::worker worker_;  // protects everything from endpoint_ on
};

}  // namespace hfcomm::engines
