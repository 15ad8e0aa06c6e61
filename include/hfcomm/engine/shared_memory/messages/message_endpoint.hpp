// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/engine/shared_memory/health.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/transfer.hpp>
#include <hfcomm/machine/waiting.hpp>

/// State and texts that the two sides of a message share (see outbox and inbox).
namespace hfcomm::engines {

/// A receiver's answer to an offer.
enum class message_answer : std::uint64_t {
  accepted,  ///< The receiver wants the bytes.
  taken,     ///< The receiver has all bytes, out of the envelope or a slot.
  refused,   ///< The offer does not fit; the receiver's call is in the envelope.
  failed,    ///< The receiver fails; its call and its reason are in the envelope.
  noted,     ///< The receiver has no receive for it yet, and will ask for it by its number.
  reads,     ///< The receiver copies the bytes out of the sender's memory.
  has_read,  ///< The receiver has all bytes, out of the sender's memory.
};

/// Messages from this length on are read in the sender's memory, if it can be read.
inline constexpr std::uint64_t least_read_bytes = std::uint64_t{16} << 10;
/// So many bytes at a time: other messages and a check of the peers come between.
inline constexpr std::uint64_t most_read_at_once = std::uint64_t{4} << 20;

/// The call of a message's sender, as its receiver knows it.
struct offer_header {
  std::uint64_t what = 0;
  std::uint64_t bytes = 0;
  std::uint64_t tag = 0;
  std::uint32_t site = 0;
};

/// A transfer that is under way.
struct pending_message {
  using clock = std::chrono::steady_clock;

  std::shared_ptr<transfer> request{};
  std::uint64_t number = 0;              ///< Number among this rank's messages, from 1.
  clock::time_point active{};            ///< Time of the last progress.
  layout::envelope* envelope = nullptr;  ///< Null until the message is offered or found, and while it is noted.
  bool is_noted = false;                 ///< Sending: the receiver will ask for it. Receiving: it has been asked for.
  std::uint64_t offer = 0;               ///< The sender's number, with again_flag where it is asked for.
  int peer = -1;                         ///< Receiving: the source, once it is known.
  std::uint64_t total = 0;               ///< Receiving: the message's bytes.
  std::uint64_t moved = 0;
  int slot = -1;
  bool streaming = false;               ///< The receiver takes the bytes, through a slot or out of the sender's memory.
  std::uint64_t address = 0;            ///< Receiving: of the sender's memory, where the bytes are read there; else 0.
  std::optional<std::uint64_t> read{};  ///< Sending: bytes that the receiver has read there, where it does.
  bool appends = false;                 ///< Receiving: the bytes go into `transfer::object`.
  bool carries_failure = false;         ///< Receiving: the bytes are the text of the sender's failure.
  bool is_awaited = false;              ///< Receiving: a check has seen that a thread waits for it.
  bool warned = false;
  offer_header noted{};  ///< Of an offer that was noted.
};

using message_list = std::list<pending_message>;
using finished_transfers = std::vector<std::shared_ptr<transfer>>;

/// One rank's endpoint for messages: its group, its mailbox, and the error texts of both sides.
class message_endpoint {
 public:
  explicit message_endpoint(std::shared_ptr<const shared_memory_health> group) : health_(std::move(group)) {}

  [[nodiscard]] const shared_memory_health& health() const noexcept { return *health_; }
  [[nodiscard]] const group_memory& memory() const noexcept { return health_->memory(); }
  [[nodiscard]] int rank() const noexcept { return health_->rank(); }
  [[nodiscard]] int size() const noexcept { return health_->size(); }
  [[nodiscard]] layout::mailbox& box() const noexcept { return memory().mailbox(rank()); }

  /// Returns the time of the last update. It stands still while this rank does not run. Not thread-safe.
  [[nodiscard]] pending_message::clock::time_point now() const noexcept { return now_; }
  /// Updates the time, and returns it. Looking at a clock for each step of a message would take a tenth of its time.
  pending_message::clock::time_point update_time() noexcept {
    now_ = pending_message::clock::time_point(running_.update());
    return now_;
  }

  /// Records this rank's last call, for error texts of other ranks.
  void record(const operation& call, std::uint64_t number) {
    layout::message_call& last = box().last_call;
    last.what.store(pack_call(call, false), std::memory_order_relaxed);
    last.bytes.store(call.bytes, std::memory_order_relaxed);
    last.tag.store(call.tag, std::memory_order_relaxed);
    last.site.store(site_of(call), std::memory_order_relaxed);
    last.number.store(number, std::memory_order_release);
  }

  [[nodiscard]] std::uint32_t site_of(const operation& call) { return sites_.index_of(call, box().sites); }

  [[nodiscard]] error_context context(const operation& call, std::uint64_t number) const {
    return {rank(), size(), call_name(call), number, call.where};
  }
  [[nodiscard]] error_context context(const pending_message& message) const {
    return context(message.request->call, message.number);
  }

  /// Returns a hash of all that must be equal on both sides of a message whose tag the receiver wants.
  [[nodiscard]] static std::uint64_t fit(const operation& call) noexcept {
    const std::uint64_t hash = hfcomm::detail::mix(
        static_cast<std::uint64_t>(call.content) | static_cast<std::uint64_t>(call.element) << 8, call.type_hash);
    return call.content == payload::buffer ? hfcomm::detail::mix(hash, call.bytes) : hash;
  }

  /// Describes the sender's call.
  [[nodiscard]] std::string text_of(int sender, const offer_header& offer) const {
    return describe_call(site(sender, offer.site), offer.what, offer.bytes, offer.tag);
  }
  [[nodiscard]] std::string text_of(int sender, const layout::envelope& envelope) const {
    return text_of(sender, header_of(envelope));
  }
  [[nodiscard]] static offer_header header_of(const layout::envelope& envelope) noexcept {
    return {envelope.what.load(), envelope.bytes.load(), envelope.tag.load(), envelope.site.load()};
  }
  /// Returns the text of a receiver that has failed.
  [[nodiscard]] static std::string reason_of(const layout::envelope& envelope) {
    std::string text;
    for (const auto& letter : envelope.their_reason) {
      if (letter.load(std::memory_order_relaxed) == '\0') {
        break;
      }
      text += letter.load(std::memory_order_relaxed);
    }
    return text;
  }
  /// Describes the call of a receiver that has refused or failed.
  [[nodiscard]] std::string receiver_text_of(int receiver, const layout::envelope& envelope) const {
    return describe_call(site(receiver, envelope.their_site.load()), envelope.their_what.load(),
                         envelope.their_bytes.load(), envelope.their_tag.load());
  }

  [[nodiscard, gnu::cold]] std::exception_ptr mismatch(const pending_message& message, int sender, int receiver,
                                                       const layout::envelope& envelope) const {
    const std::string from = detail::concat({"rank ", sender});
    const std::string to = detail::concat({"rank ", receiver});
    return std::make_exception_ptr(mismatch_error(
        context(message),
        detail::concat({from, " sends what ", to, " does not want: ", from, " called ", text_of(sender, envelope), ", ",
                        to, " called ", receiver_text_of(receiver, envelope),
                        object_against_elements(envelope.what.load(), envelope.their_what.load())}),
        sender, receiver));
  }

  /// Marks a transfer as finished. A thread that waits for it may go on at once.
  static void finish(pending_message& message, std::exception_ptr problem = nullptr) noexcept {
    message.request->problem = std::move(problem);
    message.request->finished.store(true);
  }

  /// Moves finished transfers from `entries` to `finished`.
  static void sweep(message_list& entries, finished_transfers& finished) {
    for (auto one = entries.begin(); one != entries.end();) {
      if (one->request->finished.load()) {
        finished.push_back(one->request);
        one = entries.erase(one);
      } else {
        ++one;
      }
    }
  }

 private:
  [[nodiscard]] const layout::site_text& site(int rank, std::uint32_t index) const noexcept {
    return memory().mailbox(rank).sites[index % layout::site_count];
  }

  std::shared_ptr<const shared_memory_health> health_;
  site_table sites_;
  hfcomm::detail::running_time running_;
  pending_message::clock::time_point now_{};
};

}  // namespace hfcomm::engines
