// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <hfcomm/engine/shared_memory/inbox.hpp>
#include <hfcomm/engine/shared_memory/outbox.hpp>
#include <hfcomm/group/detail/work_queue.hpp>
#include <hfcomm/machine/waiting.hpp>

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
class post_office {
 public:
  explicit post_office(std::shared_ptr<const group_watch> watch)
      : patience_(detail::patience::of(!watch->shares_cores())), desk_(std::move(watch)) {}
  post_office(const post_office&) = delete;
  post_office& operator=(const post_office&) = delete;

  void abandon(const error_context& context) noexcept { desk_.watch().abandon(context); }
  [[nodiscard]] bool broken() const noexcept { return desk_.watch().broken(); }
  [[nodiscard]] bool at_home() const noexcept { return desk_.watch().at_home(); }

  /// Starts transfers, in this order. Throws usage_error in the child of a fork, and engine_error where the thread
  /// cannot be started: then no transfer was. Everything else is the transfers'.
  static void post(const std::shared_ptr<post_office>& self, std::span<const std::shared_ptr<transfer>> transfers) {
    if (!self->at_home()) {
      throw usage_error(self->desk_.context(transfers.front()->call, 0),
                        "this group was made before a fork; the child process is not a rank of it");
    }
    mail_entries outgoing;
    mail_entries incoming;
    std::size_t alone = 0;
    for (const auto& one : transfers) {
      (one->call.pattern == movement::send ? outgoing : incoming).push_back({.job = one, .active = clock::now()});
      alone += one->listener ? 1 : 0;
    }
    finished_transfers finished;
    {
      const std::scoped_lock lock(self->mutex_);
      if (alone != 0) {
        self->start_worker(self, transfers.front()->call);
        self->left_alone_ += alone;
      }
      for (auto* fresh : {&outgoing, &incoming}) {
        for (mail_entry& one : *fresh) {
          one.number = ++self->messages_;
        }
      }
      self->outbox_.entries().splice(self->outbox_.entries().end(), outgoing);
      self->inbox_.entries().splice(self->inbox_.entries().end(), incoming);
      self->progress(finished);
    }
    if (alone != 0) {
      self->news_.notify_all();
    }
    self->settle(finished);
  }

  /// Waits until all of them are finished; their problems are theirs.
  void complete(std::span<const std::shared_ptr<transfer>> transfers) {
    const auto done = [&] {
      return std::all_of(transfers.begin(), transfers.end(), [](const auto& one) { return one->finished.load(); });
    };
    while (!done()) {
      const std::uint32_t epoch = desk_.box().epoch.load();
      if (!advance() && !done()) {
        wait_for_change(epoch, patience_);
      }
    }
  }

  /// Makes everything that is under way, and all that comes, fail.
  void cancel() noexcept {
    cancelled_.store(true);
    desk_.memory().notify(desk_.rank());
  }

  /// The group's end. Works that are not finished keep their group, so there are none, unless it is broken; a failure's
  /// text that nobody has taken is dropped.
  void stop() noexcept {
    if (!at_home()) {
      return;  // in the child of a fork there is no thread, and nobody who would unlock the mutex
    }
    if (broken()) {
      advance();  // whoever waits for a transfer must hear of it
    }
    std::thread worker;
    std::shared_ptr<detail::work_queue> continuations;
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
      worker = std::move(worker_);
      continuations = std::move(continuations_);
    }
    news_.notify_all();
    if (continuations) {
      continuations->drain();
      continuations->stop();
    }
    if (worker.get_id() == std::this_thread::get_id()) {
      worker.detach();  // the last handle was dropped by something that waited for a message
    } else if (worker.joinable()) {
      desk_.memory().notify(desk_.rank());
      worker.join();
    }
  }

 private:
  using clock = mail_entry::clock;

  static constexpr std::chrono::milliseconds look_interval{20};

  void start_worker(const std::shared_ptr<post_office>& self, const operation& call) {
    if (worker_.joinable()) {
      return;
    }
    try {
      worker_ = std::thread([self] { self->work(); });
    } catch (const std::system_error& problem) {
      throw engine_error(desk_.context(call, 0),
                         std::string("no thread could be started for messages: ") + problem.what());
    }
  }

  void work() {
    while (true) {
      const std::uint32_t epoch = desk_.box().epoch.load();
      {
        std::unique_lock lock(mutex_);
        news_.wait(lock, [this] { return stopping_ || left_alone_ != 0; });
        if (stopping_) {
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
      const std::scoped_lock lock(mutex_);
      moved = progress(finished);
      if (const auto now = clock::now(); now >= next_look_) {
        next_look_ = now + look_interval;
        look(finished, now);
      }
    }
    settle(finished);
    return moved || !finished.empty();
  }

  /// Tells everybody what is finished: first those who wait for it, then what goes on after it.
  void settle(const finished_transfers& finished) {
    if (finished.empty()) {
      return;
    }
    for (const auto& one : finished) {
      if (const auto listener = std::exchange(one->listener, nullptr); listener && listener->on_finish()) {
        go_on([listener] { listener->go_on(); });
      }
    }
    desk_.memory().notify(desk_.rank());  // another thread may wait for what this one has finished
  }

  /// Runs what waited for a transfer, on a thread that the messages do not need.
  void go_on(const std::function<void()>& then) {
    std::shared_ptr<detail::work_queue> queue;
    {
      const std::scoped_lock lock(mutex_);
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
    layout::mailbox& box = desk_.box();
    if (detail::wait_briefly(patience, [&]() noexcept { return box.epoch.load() != epoch; })) {
      return;
    }
    box.sleepers.fetch_add(1);
    if (box.epoch.load() == epoch) {
      detail::futex_wait(box.epoch, epoch, look_interval);
    }
    box.sleepers.fetch_sub(1);
  }

  /// One step of every transfer; whether there was any.
  bool progress(finished_transfers& finished) {
    const std::size_t before = finished.size();
    bool any = false;
    if (desk_.watch().broken() || cancelled_.load()) {
      fail_everything(finished);
    } else {
      any = outbox_.progress(finished);
      any = inbox_.progress(finished) || any;
    }
    count_off(finished, before);
    return any;
  }

  void count_off(const finished_transfers& finished, std::size_t from) noexcept {
    for (; from < finished.size(); ++from) {
      left_alone_ -= finished[from]->listener ? 1 : 0;
    }
  }

  /// The ranks that a transfer waits for.
  [[nodiscard]] std::vector<int> awaited(const mail_entry& one) const {
    const int root = one.peer >= 0 ? one.peer : one.job->call.root;
    std::vector<int> ranks;
    for (int rank = 0; rank < desk_.size(); ++rank) {
      if (root >= 0 ? rank == root : rank != desk_.rank() || desk_.size() == 1) {
        ranks.push_back(rank);
      }
    }
    return ranks;
  }

  /// Has anyone who is waited for gone, or has it been too long?
  void look(finished_transfers& finished, clock::time_point now) {
    drop_notices(finished);
    std::vector<bool> alive(static_cast<std::size_t>(desk_.size()) + 1);  // the last one: whoever may send to us
    for (auto* box : {&outbox_.entries(), &inbox_.entries()}) {
      for (mail_entry& one : *box) {
        if (one.job->is_failure) {
          continue;
        }
        const auto missing = awaited(one);
        const int root = one.peer >= 0 ? one.peer : one.job->call.root;
        const auto place = static_cast<std::size_t>(root >= 0 ? root : desk_.size());
        const auto lost = alive[place] ? std::nullopt : loss_for(root, missing);
        alive[place] = !lost;
        const auto still_since = box == &outbox_.entries() ? outbox_.still_since(one) : inbox_.still_since(one);
        const auto waited = now - still_since;
        const auto limit = one.job->call.timeout;
        if (lost || (limit.count() > 0 && waited >= limit)) {
          // They may have sent or taken it at the last moment.
          if (!progress(finished) && !desk_.watch().broken() && !cancelled_.load()) {
            give_up(one, lost, missing);
            progress(finished);
          }
          return;
        }
        if (!one.warned && waited >= warn_after_) {
          one.warned = true;
          desk_.watch().warn(desk_.context(one), missing, waited);
        }
      }
    }
  }

  /// A failure's text that nobody can take any more is no reason to break the group.
  void drop_notices(finished_transfers& finished) {
    const std::size_t before = finished.size();
    for (mail_entry& one : outbox_.entries()) {
      if (one.job->is_failure && desk_.watch().ending(one.job->call.root)) {
        outbox_.give_up(one);
      }
    }
    mail_desk::sweep(outbox_.entries(), finished);
    count_off(finished, before);
  }

  /// The rank because of which no message will come from, or go to, `root` (-1: anyone).
  [[nodiscard]] std::optional<group_watch::loss> loss_for(int root, const std::vector<int>& missing) const {
    auto lost = desk_.watch().find_loss(missing, [](int) { return false; });
    if (!lost || root >= 0 || lost->end.how != group_watch::kind::left) {
      return lost;
    }
    // From anyone: as long as one is there, it may come.
    const bool all_left =
        std::all_of(missing.begin(), missing.end(), [&](int rank) { return desk_.watch().ending(rank).has_value(); });
    return all_left ? lost : std::nullopt;
  }

  /// Breaks the group.
  void give_up(const mail_entry& one, const std::optional<group_watch::loss>& lost, const std::vector<int>& missing) {
    try {
      if (lost) {
        desk_.watch().break_group(desk_.context(one), *lost);
      }
      desk_.watch().break_group(desk_.context(one), missing, timeout_text(one, missing));
    } catch (const error&) {
      // The transfers get the verdict each with its own context: see fail_everything.
    }
  }

  [[nodiscard]] std::string timeout_text(const mail_entry& one, const std::vector<int>& missing) const {
    const operation& call = one.job->call;
    const bool sends = call.pattern == movement::send;
    std::string text = list_ranks(missing) + (sends ? " did not take" : " did not send") + " the message of " +
                       call_name(call) + " #" + std::to_string(one.number) + " (" + detail::describe(call.where) +
                       ") with tag " + std::to_string(call.tag) + " within " + format_duration(call.timeout) +
                       ", so rank " + std::to_string(desk_.rank()) + " gave up.";
    if (!sends) {
      text += inbox_.unwanted();  // often the explanation
    } else if (one.paper == nullptr) {
      text += " It was not offered yet: " + std::to_string(layout::envelope_count) +
              " earlier messages of this rank have not been received.";
    }
    return text;
  }

  void fail_everything(finished_transfers& finished) {
    for (auto* box : {&outbox_.entries(), &inbox_.entries()}) {
      for (mail_entry& one : *box) {
        try {
          if (desk_.watch().broken()) {
            desk_.watch().throw_verdict(desk_.context(one));
          }
          throw engine_error(desk_.context(one), "the group is being closed");
        } catch (...) {
          mail_desk::finish(one, std::current_exception());
        }
      }
      mail_desk::sweep(*box, finished);
    }
  }

  detail::patience patience_;
  std::chrono::milliseconds warn_after_ = detail::warning_time();
  std::atomic<bool> cancelled_{false};

  std::mutex mutex_;  // of everything below
  std::condition_variable news_;
  mail_desk desk_;  // what its const functions tell needs no lock
  outbox outbox_{desk_};
  inbox inbox_{desk_};
  std::uint64_t messages_ = 0;
  std::size_t left_alone_ = 0;                         // transfers under way that the worker has to see to
  std::shared_ptr<detail::work_queue> continuations_;  // once something waits for a transfer
  clock::time_point next_look_{};
  bool stopping_ = false;
  std::thread worker_;
};

}  // namespace hfcomm::engines
