// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/shared_buffer.hpp>
#include <hfcomm/engine/host_engine.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/group/detail/checked_call.hpp>
#include <hfcomm/group/detail/deferred_errors.hpp>
#include <hfcomm/group/process_group.hpp>

namespace hfcomm::detail {

/// Reserves a group for this thread. Throws usage_error where another thread is inside an operation of it, and inside a
/// section in which no other rank could answer. An asynchronous operation may use the group that it runs for.
class group_guard {
 public:
  group_guard(const process_group& group, const operation& call);
  group_guard(const group_guard&) = delete;
  group_guard& operator=(const group_guard&) = delete;
  ~group_guard();

  /// Waits for the asynchronous operations that were started earlier.
  void drain();

 private:
  group_state& state_;
  bool served_;
};

/// One collective on one group, from its entry on. Reserves the group for this thread, and reports this rank's failures
/// to the other ranks. Where an exception ends the call before the engine has begun it, the destructor reports that.
class running_call final : public checked_call {
 public:
  /// Enters the group. Throws usage_error where the group refuses the call, so that the other ranks know nothing of it;
  /// and an error that an earlier operation left behind, after telling them. `has_entered`, if given, becomes true as
  /// soon as this call holds the group, which tells the two apart.
  running_call(const process_group& group, operation& call, bool* has_entered = nullptr);
  running_call(const running_call&) = delete;
  running_call& operator=(const running_call&) = delete;
  ~running_call();

  /// Returns the engine for the operation itself. From now on the engine reports its failures.
  [[nodiscard]] host_engine& engine() noexcept {
    begun_ = true;
    return engine_;
  }
  /// Lets this rank leave the operation early where the group's handle says so. For calls of one exchange: an error of
  /// an earlier operation may end it, when the other ranks have got what this one gives.
  void allow_early_leave() noexcept;
  /// Performs the operation where no rank gives anything: it ends when all ranks have come, and a failure of one is an
  /// error on all.
  void exchange_nothing();
  [[nodiscard]] std::vector<std::byte>& scratch() noexcept;
  /// Returns the engine's memory for encoded objects. It allocates only once the engine has begun this operation.
  [[nodiscard]] shared_bytes& objects();
  HFCOMM_INLINE void announce_failure(const std::string& text) noexcept override;

 private:
  group_state& state_;
  group_guard guard_;
  host_engine& engine_;
  bool begun_ = false;
};

}  // namespace hfcomm::detail
