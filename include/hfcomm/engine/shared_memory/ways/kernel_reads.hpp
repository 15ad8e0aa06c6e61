// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/engine/receiver.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/steps.hpp>
#include <hfcomm/engine/shared_memory/ways/peer_memory.hpp>

namespace hfcomm::engines {

/// Operations that read the memory of other ranks in place, in heaps or by the kernel, and the step that ends them: no
/// rank may change or free what others read before all have read it.
class kernel_reads {
 public:
  kernel_reads(lockstep& steps, peer_memory& peers) : steps_(steps), peers_(peers) {}

  /// Brings `total` bytes from an address of another rank to the receiver. Returns false where they cannot be read.
  [[nodiscard]] bool receive(int from, std::uint64_t address, std::uint64_t total, receiver& out) const {
    const auto bytes = static_cast<std::size_t>(total);
    std::vector<std::byte> buffer;
    std::byte* to = out.place_for(from, total);
    if (to == nullptr) {
      buffer.resize(bytes);
      to = buffer.data();
    }
    if (!peers_.read(from, address, {to, bytes})) {
      return false;
    }
    if (!buffer.empty()) {
      out.receive(from, buffer, 0, total);
    }
    return true;
  }

  /// Takes the step that ends the reading. Returns whether every rank has read all; the answer is the same on all.
  [[nodiscard]] bool have_all_read(const operation& call, bool this_rank_has) {
    const bool all = could_all(call, this_rank_has);
    count_ += all ? 1 : 0;
    return all;
  }

  /// Takes a step in which each rank tells whether it could do something. Returns whether all could.
  [[nodiscard]] bool could_all(const operation& call, bool this_rank_could) {
    steps_.throw_if_broken(call);
    const layout::read_outcome mine{.has_read_all = this_rank_could ? 1U : 0U};
    std::memcpy(steps_.cell(steps_.rank(), steps_.next()).payload, &mine, sizeof(mine));
    steps_.publish(call);
    steps_.wait_all(call);
    for (int rank = 0; rank < steps_.size(); ++rank) {
      layout::read_outcome theirs;
      std::memcpy(&theirs, steps_.cell(rank, steps_.step()).payload, sizeof(theirs));
      if (theirs.has_read_all == 0) {
        return false;
      }
    }
    return true;
  }

  /// Throws for an operation that cannot be done again, because it has begun to replace its input by its result. To be
  /// called on all ranks. What `kernel_fold::can_run` has tested can be read, so a rank is lost, or a buffer has a
  /// hole.
  [[noreturn, gnu::cold]] void throw_unreadable(const operation& call) {
    std::vector<int> ranks;
    for (int turn = 1; turn < steps_.size(); ++turn) {
      ranks.push_back((steps_.rank() + turn) % steps_.size());
    }
    // The memory of a process that ends is gone a moment before the system tells that it has ended.
    for (int turn = 0; turn < 200; ++turn) {
      steps_.throw_if_lost(call, ranks);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    detail::throw_error<engine_error>(
        steps_.context(call),
        {"a part of some rank's buffer lies in memory that the kernel lets only its owner read (a device's, "
         "or secret memory); with HFCOMM_SINGLE_COPY=0 in the environment, ranks do not read each other's"});
  }

  /// Returns the number of operations that ended this way.
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }

 private:
  lockstep& steps_;
  const peer_memory& peers_;
  std::uint64_t count_ = 0;
};

}  // namespace hfcomm::engines
