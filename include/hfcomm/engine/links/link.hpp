// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace hfcomm::engines {

/// One transfer over a link. The link uses its memory until `done`; the object must not move meanwhile. A send may be
/// done before its bytes have left, and a receive before the sender knows: `progress` must go on to be called.
struct link_transfer {
  int machine = -1;              ///< The machine that it goes to, or comes from.
  std::uint32_t channel = 0;     ///< Below 2^20. Transfers of one machine, channel and direction keep their order.
  std::span<std::byte> bytes{};  ///< Both sides know the length; another length is an error. Never empty.
  bool sends = false;            ///< False for a receive.
  bool failed = false;           ///< Set before `done`.
  std::atomic<bool> done{false};
  void* native = nullptr;  ///< For the link.

  /// For the link. From then on, the object is its user's.
  void finish(bool succeeds) noexcept {
    failed = !succeeds;
    done.store(true, std::memory_order_release);
  }
};

/// Carries bytes between the machines of a job, one process of each. Knows nothing of ranks and operations, and need
/// not notice that a machine is silent: the side channel does.
///
/// One thread at a time calls, not always the same one; only `sleep` may run beside another function. Only `open`
/// throws.
class link {
 public:
  link() = default;
  link(const link&) = delete;
  link& operator=(const link&) = delete;
  /// Gives up what is under way. Does not wait for other machines.
  virtual ~link() = default;

  /// Returns "ucx", "gloo" or "mpi".
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  /// Returns the bytes by which the other machines' links find this one: at most 4 KiB.
  [[nodiscard]] virtual std::vector<std::byte> address() const = 0;

  /// Makes this the link of machine `self`. `addresses` has each machine's, this one's too. May connect later, when a
  /// transfer is started. Throws engine_error.
  virtual void open(int self, std::vector<std::vector<std::byte>> addresses) = 0;

  /// Starts a send or a receive. Where it fails at once, it is done.
  virtual void start(link_transfer& one) noexcept = 0;

  /// Moves all transfers on as far as possible without waiting. Returns whether any of them moved, as far as it knows.
  virtual bool progress() noexcept = 0;

  /// Returns false where `progress` has something to do. Otherwise the next `sleep` ends when it has.
  [[nodiscard]] virtual bool prepare_sleep() noexcept { return true; }

  /// Waits until `progress` may have something to do, `descriptor` is readable, or the time is over. May return early.
  /// Does not read from the descriptor. Where another thread has called `progress` since `prepare_sleep`, it may miss
  /// what comes.
  virtual void sleep(int descriptor, std::chrono::microseconds most) noexcept = 0;

  /// Gives up the transfers to and from `machine`, for ever. They are done and failed when it returns, and none of them
  /// touches its memory any more.
  virtual void give_up(int machine) noexcept = 0;

  /// Returns a machine of which the library has said that it is gone; -1 where there is none. A hint: the side channel
  /// decides.
  [[nodiscard]] virtual int failing_machine() const noexcept = 0;
};

}  // namespace hfcomm::engines
