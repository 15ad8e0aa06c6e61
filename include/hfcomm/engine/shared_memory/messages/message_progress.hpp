// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/shared_memory/messages/inbox.hpp>
#include <hfcomm/engine/shared_memory/messages/outbox.hpp>
#include <hfcomm/machine/waiting.hpp>

namespace hfcomm::engines {

/// The messages of a rank that are under way, in both directions. Moves them on, and breaks the group where one of them
/// can never finish. Not thread-safe, except `endpoint`, `cancel` and `is_halted`.
class message_progress {
 public:
  using clock = pending_message::clock;

  explicit message_progress(std::shared_ptr<const shared_memory_health> watch) : endpoint_(std::move(watch)) {}
  message_progress(const message_progress&) = delete;
  message_progress& operator=(const message_progress&) = delete;

  /// Returns the endpoint, whose const functions any thread may call.
  [[nodiscard]] const message_endpoint& endpoint() const noexcept { return endpoint_; }

  /// Adds transfers, in this order.
  void add(std::span<const std::shared_ptr<transfer>> transfers) {
    endpoint_.update_time();
    message_list outgoing;
    message_list incoming;
    for (const auto& one : transfers) {
      (one->call.pattern == movement::send ? outgoing : incoming)
          .push_back({.request = one, .active = endpoint_.now()});
    }
    for (auto* fresh : {&outgoing, &incoming}) {
      for (pending_message& message : *fresh) {
        message.number = ++last_number_;
        if (!message.request->is_failure) {
          endpoint_.record(message.request->call, message.number);
        }
        unattended_ += message.request->listener ? 1 : 0;
      }
    }
    outbox_.add(outgoing);
    inbox_.add(incoming);
  }

  /// Removes a receive that has found no offer yet, if it is still under way.
  void take_back(const transfer& one) { inbox_.take_back(one); }

  /// Ends a receive that has found no offer yet with cancelled_error, if it is still under way. Returns whether it did.
  [[nodiscard]] bool withdraw(const transfer& one, finished_transfers& finished) {
    pending_message* const found = inbox_.open_receive(one);
    if (found == nullptr) {
      return false;
    }
    message_endpoint::finish(*found, std::make_exception_ptr(cancelled_error(
                                         endpoint_.context(*found), "cancelled before a message came for it")));
    const std::size_t before = finished.size();
    inbox_.sweep(finished);
    count_finished(finished, before);
    return true;
  }

  /// Makes every transfer fail, those under way and those to come.
  void cancel() noexcept { cancelled_.store(true); }
  /// Returns whether no message can finish any more: the group is broken, or its messages were cancelled.
  [[nodiscard]] bool is_halted() const noexcept { return endpoint_.health().is_broken() || cancelled_.load(); }

  /// Returns whether transfers with a listener are under way. Nobody waits for those, so a thread moves them on.
  [[nodiscard]] bool has_unattended() const noexcept { return unattended_ != 0; }

  /// Updates the time by which the transfers' waits are counted, and returns it.
  clock::time_point update_time() noexcept { return endpoint_.update_time(); }

  /// Takes one step of every transfer; returns whether there was any.
  bool advance(finished_transfers& finished) {
    const std::size_t before = finished.size();
    bool any = false;
    if (is_halted()) {
      fail_everything(finished);
    } else {
      any = outbox_.progress(finished);
      any = inbox_.progress(finished) || any;
    }
    count_finished(finished, before);
    return any;
  }

  /// Breaks the group where a transfer waits for a lost rank, or longer than its deadline. Warns about slow ones. A
  /// receive without an offer only counts while a thread waits for it: it may be for a message that comes much later.
  [[gnu::cold]] void check_peers(finished_transfers& finished) {
    const auto now = endpoint_.now();
    drop_failures(finished);
    std::vector<bool> alive(static_cast<std::size_t>(endpoint_.size()) + 1);  // the last one: the ranks that may send
    for (const bool sends : {true, false}) {
      std::vector<message_pointers> late(alive.size());
      for (pending_message& message : sends ? outbox_.entries() : inbox_.entries()) {
        if (message.request->is_failure) {
          continue;
        }
        const auto missing = awaited_ranks(message);
        const int peer = peer_of(message);
        const auto place = static_cast<std::size_t>(peer >= 0 ? peer : endpoint_.size());
        const bool awaited = message.request->awaited.load();
        const auto lost = alive[place] ? std::nullopt : find_loss(peer, missing, awaited);
        alive[place] = !lost && (peer >= 0 || awaited);
        if (!sends && !message.is_awaited && message.envelope == nullptr) {
          message.active = now;
          message.is_awaited = awaited;
        }
        const auto waited = now - (sends ? outbox_.idle_since(message) : inbox_.idle_since(message));
        const auto limit = message.request->call.timeout;
        if (lost || (limit.count() > 0 && waited >= limit)) {
          // The peer may have sent or taken it at the last moment.
          if (!advance(finished) && !is_halted()) {
            break_group(message, lost, missing);
            advance(finished);
          }
          return;
        }
        if (!message.warned && waited >= warn_after_) {
          late[place].push_back(&message);
        }
      }
      auto& next = next_warnings_[sends ? 1 : 0];
      next.resize(late.size());
      for (std::size_t of_peer = 0; of_peer < late.size(); ++of_peer) {
        warn(late[of_peer], next[of_peer], now);
      }
    }
  }

 private:
  using message_pointers = std::vector<pending_message*>;

  /// Prints one line about messages that wait for one peer for long. The next ones of that peer wait as long for
  /// theirs.
  void warn(const message_pointers& late, clock::time_point& next, clock::time_point now) const {
    if (late.empty() || now < next) {
      return;
    }
    next = now + warn_after_;
    for (pending_message* const one : late) {
      one->warned = true;
    }
    const pending_message& first = *late.front();
    endpoint_.health().warn(endpoint_.context(first), awaited_ranks(first), now - first.active, late.size() - 1,
                            remedy_for(first));
  }

  /// Returns what to write instead where ranks that all send first may wait for each other; else nothing.
  [[nodiscard, gnu::cold]] std::string_view remedy_for(const pending_message& message) const {
    const int peer = message.request->call.root;
    const bool both_send = message.request->call.pattern == movement::send && peer >= 0 && peer < endpoint_.size() &&
                           endpoint_.health().last_message(peer).starts_with("send(");
    return both_send ? " Ranks that all send first wait for each other: use send_receive, or isend." : "";
  }

  void count_finished(const finished_transfers& finished, std::size_t from) noexcept {
    for (; from < finished.size(); ++from) {
      unattended_ -= finished[from]->listener ? 1 : 0;
    }
  }

  /// Returns the other rank of a message; -1 where any rank may send it.
  [[nodiscard]] static int peer_of(const pending_message& message) {
    return message.peer >= 0 ? message.peer : message.request->call.root;
  }

  /// Returns the ranks that a transfer waits for.
  [[nodiscard]] std::vector<int> awaited_ranks(const pending_message& message) const {
    const int peer = peer_of(message);
    std::vector<int> ranks;
    for (int rank = 0; rank < endpoint_.size(); ++rank) {
      if (peer >= 0 ? rank == peer : rank != endpoint_.rank() || endpoint_.size() == 1) {
        ranks.push_back(rank);
      }
    }
    return ranks;
  }

  /// Drops failures that no rank can learn of any more. They are no reason to break the group.
  [[gnu::cold]] void drop_failures(finished_transfers& finished) {
    const std::size_t before = finished.size();
    const auto tells_nobody = [this](const pending_message& message) {
      return message.request->is_failure && endpoint_.health().ending(message.request->call.root);
    };
    for (pending_message& message : outbox_.entries()) {
      if (tells_nobody(message)) {
        outbox_.withdraw(message);
      }
    }
    for (pending_message& message : inbox_.entries()) {
      if (tells_nobody(message)) {
        message_endpoint::finish(message);
      }
    }
    outbox_.sweep(finished);
    inbox_.sweep(finished);
    count_finished(finished, before);
  }

  /// Returns the lost rank because of which no message can come from, or go to, `peer` (-1: any rank). `awaited`: a
  /// thread of this rank waits for it.
  [[nodiscard]] std::optional<shared_memory_health::loss> find_loss(int peer, const std::vector<int>& missing,
                                                                    bool awaited) const {
    auto lost = endpoint_.health().find_loss(missing, [](int) { return false; });
    if (!lost || peer >= 0 || lost->end.how != shared_memory_health::kind::left) {
      return lost;
    }
    // A message from any rank may come as long as one of them is there, or this rank has not begun to wait: it may send
    // to itself.
    for (const int rank : missing) {
      if (!awaited || !endpoint_.health().ending(rank)) {
        lost.reset();
        break;
      }
    }
    return lost;
  }

  void break_group(const pending_message& message, const std::optional<shared_memory_health::loss>& lost,
                   const std::vector<int>& missing) {
    try {
      if (lost) {
        endpoint_.health().break_group(endpoint_.context(message), *lost);
      }
      endpoint_.health().break_group(endpoint_.context(message), missing, timeout_text(message, missing));
    } catch (const error&) {
      // Each transfer gets the error with its own context: see fail_everything.
    }
  }

  [[nodiscard, gnu::cold]] std::string timeout_text(const pending_message& message,
                                                    const std::vector<int>& missing) const {
    const operation& call = message.request->call;
    const bool sends = call.pattern == movement::send;
    std::string text =
        detail::concat({list_ranks(missing), sends ? " did not take" : " did not send", " the message of ",
                        call_name(call), " #", message.number, " (", detail::describe(call.where), ") with ",
                        call.tag == any_message_tag ? "any tag" : detail::concat({"tag ", call.tag}), " within ",
                        format_duration(call.timeout), " (timed out), so rank ", endpoint_.rank(), " gave up."});
    if (!sends) {
      text += inbox_.unwanted();  // often the explanation
    } else if (const std::string offers = inbox_.unwanted(call.root); !offers.empty()) {
      detail::append(text,
                     {offers, " Two ranks that both send first wait for each other: use send_receive, or isend."});
    } else {
      if (message.envelope == nullptr && !message.is_noted) {
        detail::append(text, {" It was not offered yet: rank ", call.root, " has not looked at earlier messages."});
      }
      text += remedy_for(message);
    }
    return text;
  }

  [[gnu::cold]] void fail_everything(finished_transfers& finished) {
    for (auto* messages : {&outbox_.entries(), &inbox_.entries()}) {
      for (pending_message& message : *messages) {
        try {
          if (endpoint_.health().is_broken()) {
            endpoint_.health().throw_break_error(endpoint_.context(message));
          }
          detail::throw_error<engine_error>(
              endpoint_.context(message), {"cancelled: this rank is destroying the group or the object that uses it"});
        } catch (...) {
          if (messages == &outbox_.entries()) {
            outbox_.withdraw(message, std::current_exception());
          } else {
            message_endpoint::finish(message, std::current_exception());
          }
        }
      }
    }
    outbox_.sweep(finished);
    inbox_.sweep(finished);
  }

  std::chrono::milliseconds warn_after_ = detail::warning_time();
  std::atomic<bool> cancelled_{false};
  message_endpoint endpoint_;
  outbox outbox_{endpoint_};
  inbox inbox_{endpoint_, outbox_};
  std::uint64_t last_number_ = 0;
  std::vector<clock::time_point> next_warnings_[2];  // of receives and sends, by peer
  std::size_t unattended_ = 0;                       // transfers under way that have a listener
};

}  // namespace hfcomm::engines
