// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hfcomm/engines/call_text.hpp>
#include <hfcomm/engines/engine.hpp>
#include <hfcomm/engines/self.hpp>
#include <hfcomm/error.hpp>

namespace hfcomm {

class process_group;

namespace detail {

/// What all handles of one group share.
struct group_state {
  explicit group_state(std::shared_ptr<host_engine> carrier) : engine(std::move(carrier)) {}

  std::shared_ptr<host_engine> engine;
  std::atomic<bool> busy{false};
  int master_sections = 0;         // scopes in which only the master runs, and nobody could answer it
  std::exception_ptr deferred;     // what a destructor could not throw
  std::vector<std::byte> scratch;  // for encoding; only while busy
};

struct group_access;

}  // namespace detail

/// A group of ranks: a cheap handle, copied freely; the group ends with its last handle. Every rank argument of every
/// operation (root, source, destination) is a rank of the group that the operation is given.
///
/// Thread-safety: different groups may be used from different threads at once. One group carries one operation at a
/// time; a second thread that enters gets usage_error.
class process_group {
 public:
  /// How long an operation waits for the other ranks unless told otherwise.
  static constexpr std::chrono::nanoseconds default_timeout = std::chrono::minutes(10);

  /// A group of one, in which every operation works.
  process_group() : state_(std::make_shared<detail::group_state>(std::make_shared<engines::self>())) {}

  [[nodiscard]] int rank() const noexcept { return state_->engine->rank(); }
  [[nodiscard]] int size() const noexcept { return state_->engine->size(); }

  /// The engine that carries host data: "self" or "shared_memory".
  [[nodiscard]] std::string_view host_backend() const noexcept { return state_->engine->name(); }
  /// The engine that carries device data: "none" in this version.
  [[nodiscard]] std::string_view device_backend() const noexcept { return "none"; }

  /// True once a rank of the group is lost or a deadline passed: every later call throws the same error.
  [[nodiscard]] bool broken() const noexcept { return state_->engine->broken(); }

  /// The same group with another deadline for its operations; zero or less waits for ever (lost peers are still
  /// noticed).
  [[nodiscard]] process_group with_timeout(std::chrono::nanoseconds timeout) const {
    process_group copy = *this;
    copy.timeout_ = timeout;
    return copy;
  }
  [[nodiscard]] std::chrono::nanoseconds timeout() const noexcept { return timeout_; }

  /// New groups, one for each `color` (>= 0); within a group the ranks are ordered by `key`, then by their rank here.
  /// Collective: every rank of this group calls it. Throws usage_error for a negative color: a rank that wants no group
  /// is left out by `subgroup`.
  [[nodiscard]] process_group split(int color, int key = 0,
                                    std::source_location where = std::source_location::current()) const;

  /// A new group of these ranks, in this order; nullopt on a rank that is not among them. Collective: every rank of
  /// this group calls it, with the same list (mismatch_error otherwise). Throws usage_error for an empty list, a rank
  /// that this group does not have, or one named twice.
  [[nodiscard]] std::optional<process_group> subgroup(
      std::span<const int> ranks, std::source_location where = std::source_location::current()) const;
  [[nodiscard]] std::optional<process_group> subgroup(
      std::initializer_list<int> ranks, std::source_location where = std::source_location::current()) const {
    return subgroup(std::span<const int>(ranks.begin(), ranks.size()), where);
  }

  /// Whether both handles mean the same group.
  [[nodiscard]] friend bool operator==(const process_group& left, const process_group& right) noexcept {
    return left.state_ == right.state_;
  }

 private:
  friend struct detail::group_access;
  explicit process_group(std::shared_ptr<host_engine> engine, std::chrono::nanoseconds timeout = default_timeout)
      : state_(std::make_shared<detail::group_state>(std::move(engine))), timeout_(timeout) {}

  std::shared_ptr<detail::group_state> state_;
  std::chrono::nanoseconds timeout_ = default_timeout;
};

namespace detail {

/// The library's way into a group.
struct group_access {
  static process_group make(std::shared_ptr<host_engine> engine, std::chrono::nanoseconds timeout) {
    return process_group(std::move(engine), timeout);
  }
  static group_state& state(const process_group& group) noexcept { return *group.state_; }
  static host_engine& engine(const process_group& group) noexcept { return *group.state_->engine; }
};

inline error_context context_of(const process_group& group, const operation& call) {
  return {group.rank(), group.size(), engines::call_name(call), group_access::engine(group).sequence() + 1, call.where};
}

/// One operation on one group, from the moment the caller enters: holds the group against a second thread, and knows
/// how to fail so that the other ranks learn of it.
class running_call {
 public:
  running_call(const process_group& group, operation& call)
      : group_(group), state_(group_access::state(group)), call_(call) {
    if (state_.busy.exchange(true, std::memory_order_acquire)) {
      throw usage_error(
          context_of(group, call),
          "another thread is inside an operation of this group; give each thread a group of its own (split)");
    }
    call_.timeout = group.timeout();
    if (state_.deferred) [[unlikely]] {
      fail_with(std::exchange(state_.deferred, nullptr));
    }
    if (state_.master_sections != 0) [[unlikely]] {
      state_.busy.store(false, std::memory_order_release);
      throw usage_error(
          context_of(group, call),
          "called inside a master-first section: the other ranks wait for the section to end and cannot answer");
    }
  }
  running_call(const running_call&) = delete;
  running_call& operator=(const running_call&) = delete;
  ~running_call() { state_.busy.store(false, std::memory_order_release); }

  [[nodiscard]] host_engine& engine() noexcept { return *state_.engine; }
  [[nodiscard]] std::vector<std::byte>& scratch() noexcept { return state_.scratch; }
  [[nodiscard]] error_context context() const { return context_of(group_, call_); }

  /// This rank's arguments or its data are unusable: takes part in the operation as a failure, so that every other rank
  /// throws peer_error with `text` instead of waiting. The caller throws its own error afterwards.
  void reject(const std::string& text) noexcept {
    try {
      engine().announce(call_, &text);
    } catch (...) {
      // The group has a worse problem, which its next operation reports; the caller's own error comes first.
    }
  }

  /// Throws usage_error, and tells the others, unless `condition` holds.
  template <class Text>
  void require(bool condition, Text&& text) {
    if (!condition) [[unlikely]] {
      const auto where = context();
      const std::string words = text();
      reject(words);
      throw usage_error(where, words);
    }
  }

  void require_root() {
    require(call_.root >= 0 && call_.root < group_.size(), [this] {
      return "root " + std::to_string(call_.root) + " is not a rank of this group of " + std::to_string(group_.size());
    });
  }

 private:
  /// Throws what a destructor of this rank could not; the others must not wait for this operation in vain.
  [[noreturn]] void fail_with(const std::exception_ptr& problem) {
    try {
      std::rethrow_exception(problem);
    } catch (const std::exception& earlier) {
      reject(std::string("an earlier operation of this rank failed: ") + earlier.what());
      state_.busy.store(false, std::memory_order_release);
      throw;
    }
  }

  const process_group& group_;
  group_state& state_;
  operation& call_;
};

/// Collects equally long plain contributions in rank order.
class table_receiver final : public receiver {
 public:
  explicit table_receiver(std::span<std::byte> table) : table_(table) {}

  void receive(int source, std::span<const std::byte> chunk, std::uint64_t offset, std::uint64_t total) override {
    if (!chunk.empty()) {
      std::byte* to = table_.data() + static_cast<std::uint64_t>(source) * total + offset;
      if (to != chunk.data()) {  // in place: a rank's own part is there already
        std::memmove(to, chunk.data(), chunk.size());
      }
    }
  }

 private:
  std::span<std::byte> table_;
};

}  // namespace detail

inline process_group process_group::split(int color, int key, std::source_location where) const {
  operation call{.name = "split",
                 .pattern = movement::to_all,
                 .content = payload::buffer,
                 .bytes = 2 * sizeof(int),
                 .where = where};
  detail::running_call running(*this, call);
  running.require(color >= 0,
                  [&] { return "color " + std::to_string(color) + " is negative; use subgroup to leave ranks out"; });
  const std::array<int, 2> mine{color, key};
  std::vector<std::array<int, 2>> wishes(static_cast<std::size_t>(size()));
  detail::table_receiver table(std::as_writable_bytes(std::span(wishes)));
  running.engine().exchange(call, std::as_bytes(std::span(mine)), table);

  std::vector<int> members;
  for (int other = 0; other < size(); ++other) {
    if (wishes[static_cast<std::size_t>(other)][0] == color) {
      members.push_back(other);
    }
  }
  std::sort(members.begin(), members.end(), [&](int left, int right) {
    return std::pair(wishes[static_cast<std::size_t>(left)][1], left) <
           std::pair(wishes[static_cast<std::size_t>(right)][1], right);
  });
  operation make{.name = "split", .where = where, .timeout = timeout_};
  return process_group(running.engine().subgroup(make, members), timeout_);
}

inline std::optional<process_group> process_group::subgroup(std::span<const int> ranks,
                                                            std::source_location where) const {
  operation call{.name = "subgroup",
                 .pattern = movement::none,
                 .type_hash = detail::fnv1a({reinterpret_cast<const char*>(ranks.data()), ranks.size_bytes()}),
                 .where = where};
  detail::running_call running(*this, call);
  std::vector<bool> seen(static_cast<std::size_t>(size()));
  running.require(!ranks.empty(), [] { return "an empty list of ranks makes no group"; });
  for (const int member : ranks) {
    running.require(member >= 0 && member < size(), [&] {
      return "rank " + std::to_string(member) + " is not a rank of this group of " + std::to_string(size());
    });
    running.require(!seen[static_cast<std::size_t>(member)],
                    [&] { return "rank " + std::to_string(member) + " is named twice"; });
    seen[static_cast<std::size_t>(member)] = true;
  }
  const bool inside = seen[static_cast<std::size_t>(rank())];
  auto engine = running.engine().subgroup(call, inside ? ranks : std::span<const int>());
  return engine ? std::optional<process_group>(process_group(std::move(engine), timeout_)) : std::nullopt;
}

}  // namespace hfcomm
