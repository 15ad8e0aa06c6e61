// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <hfcomm/core/config.hpp>
#include <hfcomm/cuda/nccl_api.hpp>

namespace hfcomm::engines {

/// The state of the thread that operates on a communicator. A thread that aborts the communicator reads it, to not take
/// the communicator away from under a call. It is shared, because that thread may outlive the engine.
enum class thread_state : int {
  outside,    ///< In no call of NCCL, and none is deferred.
  calling,    ///< In a call.
  deferring,  ///< Between calls, of which NCCL has deferred some.
  cancelled,  ///< To call NCCL no more.
};
using shared_thread_state = std::shared_ptr<std::atomic<thread_state>>;

/// The calls that this thread has NCCL defer, between ncclGroupStart and ncclGroupEnd. An NCCL group belongs to a
/// thread and takes the calls on all communicators.
class nccl_batch {
 public:
  /// Returns this thread's batch, or null. A plain pointer, because every operation asks.
  [[nodiscard]] static nccl_batch* current() noexcept { return slot(); }

  /// Describes why ranks cannot agree about a communicator now: this thread has a batch. Empty where it has none.
  [[nodiscard]] static const char* problem() noexcept {
    return current() == nullptr ? ""
                                : "called inside an nccl_group_scope, in which NCCL defers all calls; end it first";
  }

  [[nodiscard]] static ncclResult_t begin(const cuda::nccl_api& api) {
    auto made = std::make_unique<nccl_batch>();
    const ncclResult_t begun = api.ncclGroupStart();
    if (begun == ncclSuccess) {
      slot() = made.release();
    }
    return begun;
  }

  /// Puts the deferred operations on their streams.
  static ncclResult_t end(const cuda::nccl_api& api) noexcept {
    const std::unique_ptr<nccl_batch> ended(std::exchange(slot(), nullptr));
    for (const auto& state : ended->states_) {
      state->store(thread_state::calling);  // the call may wait for other ranks, until the communicator is aborted
    }
    const ncclResult_t result = api.ncclGroupEnd();
    for (const auto& state : ended->states_) {
      state->store(thread_state::outside, std::memory_order_release);
    }
    return result;
  }

  /// Makes NCCL drop the deferred calls: a call that NCCL rejects cancels the whole group.
  static void discard(const cuda::nccl_api& api) noexcept {
    (void)api.ncclAllReduce(nullptr, nullptr, 1, ncclUint8, ncclSum, nullptr, nullptr);
    (void)end(api);
  }

  /// Returns whether this thread's batch has calls of the engine that `state` belongs to.
  [[nodiscard]] static bool has_calls_of(const shared_thread_state& state) noexcept {
    const nccl_batch* const batch = current();
    return batch != nullptr && std::find(batch->states_.begin(), batch->states_.end(), state) != batch->states_.end();
  }

  /// Adds a call of the engine that `state` belongs to.
  void add(const shared_thread_state& state) {
    if (!has_calls_of(state)) {
      states_.push_back(state);
      state->store(thread_state::deferring);
    }
  }

  /// Counts one more operation. Returns whether the batch has become so large that it should be put on its streams. A
  /// batch with messages is never split, because they may wait for each other.
  [[nodiscard]] bool is_full_with_one_more() noexcept { return ++operations_ >= most_operations && !has_messages_; }
  void add_messages() noexcept { has_messages_ = true; }

 private:
  /// Old versions of NCCL allow 2048 messages in one group.
  static constexpr std::size_t most_operations = 1024;

  HFCOMM_PROCESS_STATE static nccl_batch*& slot() noexcept {
    thread_local nccl_batch* batch = nullptr;
    return batch;
  }

  bool has_messages_ = false;
  std::size_t operations_ = 0;
  std::vector<shared_thread_state> states_{};  // of the engines whose calls are deferred
};

}  // namespace hfcomm::engines
