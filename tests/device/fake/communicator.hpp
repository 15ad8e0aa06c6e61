// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <nccl.h>

#include <hfcomm/group/detail/group_state.hpp>
#include <hfcomm/group/process_group.hpp>

namespace fake_cuda {

/// An operator of ncclRedOpCreatePreMulSum.
struct scaled_sum {
  ncclDataType_t type = ncclFloat32;
  std::array<std::byte, 8> factor{};
  const void* factor_at = nullptr;  // read when the operation runs
};

/// A job that a communicator is busy with. `conclude` runs on the thread that learns of its end.
struct pending_job {
  bool done = false;
  ncclResult_t result = ncclSuccess;
  int polls = 0;  // number of polls that at least report it as in progress
  std::function<ncclResult_t()> conclude{};
};

}  // namespace fake_cuda

struct ncclComm {
  int device = 0;
  int rank = 0;
  int ranks = 1;
  bool blocking = true;

  std::atomic<bool> aborted{false};
  mutable std::mutex mutex{};
  std::condition_variable changed{};
  // All members below are protected by the mutex.
  std::optional<hfcomm::process_group> control{};  // for splits and windows
  std::optional<hfcomm::process_group> data{};     // for kernels
  ncclResult_t error = ncclSuccess;
  std::shared_ptr<fake_cuda::pending_job> pending{};
  std::uint64_t issued = 0;    // kernels put on streams
  std::uint64_t finished = 0;  // kernels that have run, one after the other on all streams
  std::map<int, fake_cuda::scaled_sum> sums{};
  int next_sum = ncclNumOps;
  std::map<void*, std::unique_ptr<char>> registrations{};

  /// Returns ncclSuccess where the communicator takes operations.
  [[nodiscard]] ncclResult_t ready() const {
    const std::scoped_lock lock(mutex);
    if (aborted.load() || pending != nullptr) {
      return ncclInvalidArgument;
    }
    return error;
  }

  void publish(std::optional<hfcomm::process_group>& where, hfcomm::process_group group) {
    {
      const std::scoped_lock lock(mutex);
      where = group;
    }
    if (aborted.load()) {
      cancel();
    }
  }
  [[nodiscard]] std::optional<hfcomm::process_group> copy_of(const std::optional<hfcomm::process_group>& group) const {
    const std::scoped_lock lock(mutex);
    return group;
  }

  void abort() {
    aborted.store(true);
    cancel();
    const std::scoped_lock lock(mutex);
    changed.notify_all();
  }
  void wait_until_aborted() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return aborted.load(); });
  }

  [[nodiscard]] std::uint64_t issue() {
    const std::scoped_lock lock(mutex);
    return issued++;
  }
  void wait_for_turn(std::uint64_t ticket) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return finished == ticket || aborted.load(); });
  }
  void finish_turn() {
    const std::scoped_lock lock(mutex);
    ++finished;
    changed.notify_all();
  }
  void wait_until_idle() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return finished == issued || aborted.load(); });
  }

  /// Leaves its groups, unless a kernel still holds them.
  void release() {
    std::optional<hfcomm::process_group> one;
    std::optional<hfcomm::process_group> other;
    {
      const std::scoped_lock lock(mutex);
      one.swap(control);
      other.swap(data);
      registrations.clear();
      sums.clear();
    }
  }

 private:
  void cancel() const {
    for (const auto* group : {&control, &data}) {
      if (const auto copy = copy_of(*group)) {
        hfcomm::detail::group_access::engine(*copy).cancel();
      }
    }
  }
};

struct ncclWindow_vidmem {
  ncclComm* owner = nullptr;
  void* base = nullptr;
  std::size_t bytes = 0;
  int flags = 0;
};
