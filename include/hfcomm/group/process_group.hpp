// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hfcomm/core/error.hpp>
#include <hfcomm/core/shared_buffer.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/engine/device_engine.hpp>
#include <hfcomm/engine/host_engine.hpp>
#include <hfcomm/engine/self.hpp>
#include <hfcomm/group/detail/work_queue.hpp>

namespace hfcomm {

class process_group;

namespace detail {

/// Collects, on the thread that made it, the problems of destructors that no operation of their group was left to
/// throw. Where nobody collects them they are printed.
class unheard_problems {
 public:
  unheard_problems() noexcept : before_(std::exchange(collector(), this)) {}
  unheard_problems(const unheard_problems&) = delete;
  unheard_problems& operator=(const unheard_problems&) = delete;
  ~unheard_problems() { collector() = before_; }

  static void add(const std::exception_ptr& problem) noexcept {
    if (auto* here = collector(); here != nullptr) {
      here->first_ = here->first_ ? here->first_ : problem;
      return;
    }
    try {
      std::rethrow_exception(problem);
    } catch (const std::exception& unheard) {
      std::fprintf(stderr, "[hfcomm] an error that no operation was left to throw: %s\n", unheard.what());
    } catch (...) {
      std::fputs("[hfcomm] an exception that no operation was left to throw\n", stderr);
    }
  }

  /// The first one, or what `world` still has.
  void rethrow(const process_group& world);

 private:
  static unheard_problems*& collector() noexcept {
    thread_local unheard_problems* here = nullptr;
    return here;
  }

  unheard_problems* before_;
  std::exception_ptr first_;
};

/// What all handles of one group share.
struct group_state {
  explicit group_state(std::shared_ptr<host_engine> carrier) : engine(std::move(carrier)) {}

  group_state(const group_state&) = delete;
  group_state& operator=(const group_state&) = delete;
  ~group_state() {
    devices.reset();  // while there is a host plane
    if (queue) {
      queue->stop();
    }
    if (deferred) {
      unheard_problems::add(deferred);
    }
  }

  /// What an operation leaves of the scratch memory to the next one. A larger piece costs little to get again beside
  /// what it is used for; a chunk of a coalesced list fits.
  static constexpr std::size_t kept_scratch_bytes = std::size_t{32} << 20;

  /// What a destructor could not throw, which is somebody else's to throw now; null where there is nothing.
  [[nodiscard]] std::exception_ptr take_deferred() {
    const std::scoped_lock lock(deferred_mutex);
    has_deferred.store(false);
    return std::exchange(deferred, nullptr);
  }

  std::shared_ptr<host_engine> engine;
  std::atomic<bool> busy{false};
  std::atomic<int> master_sections{0};  // scopes in which only the master runs, and nobody could answer it
  std::mutex deferred_mutex;
  std::exception_ptr deferred;  // what a destructor could not throw
  std::atomic<bool> has_deferred{false};
  bool served_busy = false;        // `busy` of the thread that runs an asynchronous operation
  std::vector<std::byte> scratch;  // one collective at a time
  /// Objects as bytes, where the others can read them: in the engine's memory, which it keeps as long as it lives.
  std::pmr::vector<std::byte> objects{engine->memory().get()};
  std::shared_ptr<work_queue> queue;       // once there is an asynchronous operation
  std::shared_ptr<device_engine> devices;  // once there is a device operation
  std::atomic<bool> has_devices{false};
};

struct group_access;

[[nodiscard]] inline bool device_checks_wanted() noexcept {
  static const bool wanted = [] {
    const char* value = std::getenv("HFCOMM_CHECK_DEVICE");
    return value != nullptr && std::string_view(value) == "1";
  }();
  return wanted;
}

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
  /// The engine that carries device data: "nccl", "cuda" in a group of one, or "none" before the first device operation
  /// (see connect_device).
  [[nodiscard]] std::string_view device_backend() const noexcept {
    return state_->has_devices.load() ? state_->devices->name() : "none";
  }

  /// True once a rank of the group is lost or a deadline passed: every later call throws the same error.
  [[nodiscard]] bool broken() const noexcept { return state_->engine->broken(); }

  /// `count` zeros of type T in memory that the ranks of this group see: see shared_buffer. Not collective; any thread.
  /// Throws std::bad_alloc.
  template <plain T>
  [[nodiscard]] shared_buffer<T> allocate(std::size_t count) const {
    return shared_buffer<T>(count, shared_memory());
  }
  /// Where `allocate` takes it from; ordinary memory in a group of one. It may outlive the group.
  [[nodiscard]] std::shared_ptr<std::pmr::memory_resource> shared_memory() const { return state_->engine->memory(); }

  /// The same group with another deadline for its operations; zero or less waits for ever (lost peers are still
  /// noticed).
  [[nodiscard]] process_group with_timeout(std::chrono::nanoseconds timeout) const {
    process_group copy = *this;
    copy.timeout_ = timeout;
    return copy;
  }
  [[nodiscard]] std::chrono::nanoseconds timeout() const noexcept { return timeout_; }

  /// The same group, whose collectives through this handle also agree on `tag`: the number of the iteration, say. In a
  /// loop that calls one thing, a rank that skips an iteration would pair up with the others' next one; with tags that
  /// is a mismatch_error. 0 is no tag. Messages have their own; a premultiplied sum goes without.
  [[nodiscard]] process_group with_tag(std::uint64_t tag) const {
    process_group copy = *this;
    copy.tag_ = tag;
    return copy;
  }
  [[nodiscard]] std::uint64_t tag() const noexcept { return tag_; }

  /// The same group, whose device operations through this handle are compared over the host plane before they are put
  /// on a device: a mismatch is a mismatch_error that names both ranks and call sites, where it is a hang otherwise, or
  /// wrong numbers; of uneven parts their lengths, too. Costs a meeting of all ranks for each operation but messages,
  /// which are not compared. All ranks do it, or none. The variable
  /// HFCOMM_CHECK_DEVICE=1 does it for all groups.
  [[nodiscard]] process_group with_device_checks(bool checks = true) const {
    process_group copy = *this;
    copy.checks_devices_ = checks;
    return copy;
  }
  [[nodiscard]] bool checks_devices() const noexcept { return checks_devices_; }

  /// New groups, one for each `color` (>= 0); within a group the ranks are ordered by `key`, then by their rank here.
  /// Collective: every rank of this group calls it. Throws usage_error for a negative color: a rank that wants no group
  /// is left out by `subgroup`. Where this group has been connected for device operations, the new ones are, too.
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

  /// A new group of these ranks, with a device plane where this one has one.
  [[nodiscard]] std::optional<process_group> part(const operation& call, std::span<const int> members) const;

  std::shared_ptr<detail::group_state> state_;
  std::chrono::nanoseconds timeout_ = default_timeout;
  std::uint64_t tag_ = 0;
  bool checks_devices_ = detail::device_checks_wanted();
};

namespace detail {

/// The library's way into a group.
struct group_access {
  static process_group make(std::shared_ptr<host_engine> engine, std::chrono::nanoseconds timeout) {
    return process_group(std::move(engine), timeout);
  }
  static group_state& state(const process_group& group) noexcept { return *group.state_; }
  static host_engine& engine(const process_group& group) noexcept { return *group.state_->engine; }
  static const std::shared_ptr<host_engine>& shared_engine(const process_group& group) noexcept {
    return group.state_->engine;
  }
};

inline error_context context_of(const process_group& group, const operation& call) {
  return {group.rank(), group.size(), engines::call_name(call), group_access::engine(group).sequence() + 1, call.where};
}

/// Keeps what a destructor cannot throw for the group's next collective. The first problem is the one to hear of.
inline void defer(const process_group& group, std::exception_ptr problem) noexcept {
  auto& state = group_access::state(group);
  const std::scoped_lock lock(state.deferred_mutex);
  state.deferred = state.deferred ? state.deferred : std::move(problem);
  state.has_deferred.store(true);
}

inline void unheard_problems::rethrow(const process_group& world) {
  const auto deferred = group_access::state(world).take_deferred();
  first_ = first_ ? first_ : deferred;
  if (first_) {
    std::rethrow_exception(first_);
  }
}

}  // namespace detail

}  // namespace hfcomm
