// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <hfcomm/core/shared_buffer.hpp>
#include <hfcomm/engine/device_engine.hpp>
#include <hfcomm/engine/host_engine.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/machine/work_queue.hpp>

namespace hfcomm::detail {

class watched_operations;

/// State that all handles of one group share.
class group_state {
 public:
  /// Without an engine it is a group of one, whose engine is made at its first use. So a program that only asks for its
  /// rank pays for none.
  explicit group_state(std::shared_ptr<host_engine> engine);
  group_state(const group_state&) = delete;
  group_state& operator=(const group_state&) = delete;
  ~group_state();

  /// Capacity of scratch memory that an operation leaves to the next one. Allocating more again costs little beside the
  /// operation that needs it. A chunk of a coalesced list fits.
  static constexpr std::size_t kept_scratch_bytes = std::size_t{32} << 20;

  [[nodiscard]] host_engine& engine() {
    host_engine* const made = engine_.load(std::memory_order_acquire);
    return made != nullptr ? *made : make_engine();
  }
  [[nodiscard]] const std::shared_ptr<host_engine>& shared_engine() {
    (void)engine();
    return owned_engine_;
  }
  /// Null before the first use of a group of one.
  [[nodiscard]] const host_engine* engine_if_made() const noexcept { return engine_.load(std::memory_order_acquire); }

  /// Takes the error that a destructor left for the next operation to throw; null where there is none.
  [[nodiscard]] std::exception_ptr take_deferred();

  /// Returns memory for encoded objects, which the engine owns and the other ranks can read.
  [[nodiscard]] shared_bytes& objects();
  /// Frees scratch memory beyond kept_scratch_bytes.
  void trim_scratch() noexcept;

  /// This process's part of a job of its own, which ends with the last group of the job, after its engine; null for
  /// the groups of the session. Set before the group is used.
  std::shared_ptr<const void> job;

 private:
  host_engine& make_engine();

  std::mutex engine_mutex_;
  std::shared_ptr<host_engine> owned_engine_;
  std::atomic<host_engine*> engine_;

 public:
  std::atomic<bool> busy{false};
  std::atomic<int> master_sections{0};  // scopes in which only the master runs, and no other rank can answer it
  std::mutex deferred_mutex;
  std::exception_ptr deferred;  // the error that a destructor could not throw
  std::atomic<bool> has_deferred{false};
  bool served_busy = false;        // `busy` of the thread that runs an asynchronous operation
  std::vector<std::byte> scratch;  // one collective at a time
  std::optional<shared_bytes> encoded;
  std::shared_ptr<work_queue> queue;       // once there is an asynchronous operation; its deleter stops it
  std::shared_ptr<device_engine> devices;  // once there is a device operation
  std::atomic<bool> has_devices{false};
  std::atomic<watched_operations*> watched{nullptr};  // of the group's device_watch; null where it has none
};

/// Access of the library to a group's private parts.
struct group_access {
  static process_group make(std::shared_ptr<host_engine> engine, std::chrono::nanoseconds timeout) {
    return process_group(std::move(engine), timeout);
  }
  static group_state& state(const process_group& group) noexcept { return *group.state_; }
  static host_engine& engine(const process_group& group) { return group.state_->engine(); }
  static const std::shared_ptr<host_engine>& shared_engine(const process_group& group) {
    return group.state_->shared_engine();
  }
};

/// Returns the error context of a call that has not begun.
error_context context_of(const process_group& group, const operation& call);

}  // namespace hfcomm::detail
