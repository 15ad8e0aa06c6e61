// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <hfcomm/cuda/nccl_api.hpp>

namespace hfcomm::engines {

/// Where the thread is that operates on a communicator: nowhere in NCCL, in a call, or between calls while NCCL holds
/// some back. Who aborts it from another thread looks at that, and may outlive the engine. One that was cancelled does
/// not go in any more.
enum class whereabouts : int { outside, calling, holding, cancelled };
using shared_whereabouts = std::shared_ptr<std::atomic<whereabouts>>;

/// What this thread has NCCL hold back: NCCL's groups are the thread's, whatever communicators they are of.
class nccl_batch {
 public:
  /// Null where nothing is held back. A plain pointer, because every operation asks.
  [[nodiscard]] static nccl_batch* current() noexcept { return slot(); }

  /// Why ranks cannot agree about a communicator now; empty where nothing is held back.
  [[nodiscard]] static const char* problem() noexcept {
    return current() == nullptr ? ""
                                : "called inside an nccl_group_scope, in which NCCL holds back what it is called for";
  }

  [[nodiscard]] static ncclResult_t begin(const cuda::nccl_api& api) {
    auto made = std::make_unique<nccl_batch>();
    const ncclResult_t begun = api.ncclGroupStart();
    if (begun == ncclSuccess) {
      slot() = made.release();
    }
    return begun;
  }

  /// Puts what is held back on its streams.
  static ncclResult_t end(const cuda::nccl_api& api) noexcept {
    const std::unique_ptr<nccl_batch> ended(std::exchange(slot(), nullptr));
    for (const auto& engine : ended->engines_) {
      engine->store(whereabouts::calling);  // which may wait for other ranks, until it is aborted
    }
    const ncclResult_t result = api.ncclGroupEnd();
    for (const auto& engine : ended->engines_) {
      engine->store(whereabouts::outside, std::memory_order_release);
    }
    return result;
  }

  /// Has NCCL forget it: a call that it refuses spoils the group.
  static void discard(const cuda::nccl_api& api) noexcept {
    (void)api.ncclAllReduce(nullptr, nullptr, 1, ncclUint8, ncclSum, nullptr, nullptr);
    (void)end(api);
  }

  /// Whether some of it is of the engine whose thread that is.
  [[nodiscard]] static bool holds(const shared_whereabouts& engine) noexcept {
    const nccl_batch* const held = current();
    return held != nullptr && std::find(held->engines_.begin(), held->engines_.end(), engine) != held->engines_.end();
  }

  void add(const shared_whereabouts& engine) {
    if (!holds(engine)) {
      engines_.push_back(engine);
      engine->store(whereabouts::holding);
    }
  }

  /// Whether it has reached the size at which it had better be put on the streams; not while it has messages, which may
  /// wait for each other, and so stay together.
  [[nodiscard]] bool is_full_with_one_more() noexcept { return ++operations_ >= most_operations && !messages_; }
  void has_messages() noexcept { messages_ = true; }

 private:
  /// Old versions of NCCL have a limit of 2048 messages for what a group may hold.
  static constexpr std::size_t most_operations = 1024;

  static nccl_batch*& slot() noexcept {
    thread_local nccl_batch* held = nullptr;
    return held;
  }

  bool messages_ = false;
  std::size_t operations_ = 0;
  std::vector<shared_whereabouts> engines_{};
};

}  // namespace hfcomm::engines
