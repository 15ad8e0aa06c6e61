// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <hfcomm/core/error.hpp>
#include <hfcomm/core/shared_buffer.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/engine/receiver.hpp>
#include <hfcomm/engine/transfer.hpp>

namespace hfcomm::engines {

class group_health;

/// A state of the thread that gives a group its operations. Another thread may perform them (see
/// host_engine::set_caller).
enum class caller_state : std::uint8_t {
  works,  ///< It may have operations under way, and does something else.
  waits,  ///< It waits for its operations.
  rests,  ///< It has none under way, and does something else.
};

/// Carries bytes between the ranks of one group. The typed surface turns a call into an `operation` and bytes, and
/// hands both to one of these functions. The group's health tells which ranks are alive.
///
/// Functions that are not virtual choose by the engine's kind. So a program has the code of those operations that it
/// calls, and not of all that an engine can do.
///
/// Every operation is collective unless it says otherwise. It compares the ranks' signatures inside the algorithm that
/// it runs anyway, and throws
///   mismatch_error  where they differ (on every rank),
///   peer_error      where a rank died, left, or announced that its part failed,
///   timeout_error   where `operation::timeout` passed.
/// One thread at a time calls operations; the process group sees to that.
class host_engine {
 public:
  enum class kind : std::uint8_t { self, shared_memory };

  host_engine(kind which, std::shared_ptr<const group_health> health) : kind_(which), health_(std::move(health)) {}
  host_engine(const host_engine&) = delete;
  host_engine& operator=(const host_engine&) = delete;
  virtual ~host_engine() = default;

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  [[nodiscard]] const group_health& health() const noexcept { return *health_; }
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  // Operations.

  /// Moves every contribution to the ranks that receive (see `movement`). Returns when this rank's part is done.
  void exchange(const operation& call, std::span<const std::byte> contribution, receiver& out);

  /// Reduces equally long buffers. `out` is filled where `call.receives(rank())`; it may be `in` itself.
  void reduce(const operation& call, std::span<const std::byte> in, std::span<std::byte> out);

  /// Brings each rank its own part: a scatterv (movement::from_root), a gatherv (to_root) or an all-to-allv (to_all).
  /// With payload::buffer all parts are `call.bytes` long. Otherwise they may differ, and `out` is told their lengths
  /// first (receiver::expect); where one is not as long as its receiver expects, every rank throws mismatch_error.
  void all_to_all_v(const operation& call, const rank_parts& mine, receiver& out);

  /// Reduces equally long buffers and leaves each rank one part of the result. `parts` has the bytes for each rank, and
  /// `in` as many as all of them. The caller sees to it that `parts` is the same on all ranks; it is not compared.
  /// `out` may be this rank's part of `in`.
  void reduce_scatter(const operation& call, std::span<const std::byte> in, std::span<const std::uint64_t> parts,
                      std::span<std::byte> out);

  /// Takes part without waiting for this operation's ranks; it may wait for those of the one before (see `prepare`).
  /// With `failure`, every rank that takes part throws peer_error with that text. An empty text means that an exception
  /// is unwinding this rank: the others wait for the text that its handler may publish, up to 300 ms.
  virtual void announce(const operation& call, const std::string* failure) = 0;

  /// Takes part and waits for `source` alone.
  virtual void wait_for(const operation& call, int source) = 0;

  /// Makes a new group of `members`: ranks of this group, in the new group's rank order. Called by every rank of this
  /// group, each with the members of its own new group. A rank without one passes an empty span and gets null.
  std::shared_ptr<host_engine> subgroup(const operation& call, std::span<const int> members);

  // Around an operation.

  /// Throws what the next operation would throw at once: a lost rank, an earlier mismatch. An `announce` that follows
  /// will not wait.
  virtual void prepare(const operation& call) = 0;

  /// Returns memory in which the bytes of the `exchange` that follows are best put together; empty where the engine has
  /// none. Throws what the exchange would throw at once.
  [[nodiscard]] virtual std::span<std::byte> staging_memory(const operation& /*call*/) { return {}; }

  /// Returns the number of the operation that was begun last, from 1. Any thread may call.
  [[nodiscard]] virtual std::uint64_t sequence() const noexcept = 0;

  /// Returns what `rank` called as its part of this rank's last operation, with its call site. That operation has
  /// completed.
  [[nodiscard]] virtual std::string matching_call(int rank) const = 0;

  /// Returns whether all ranks called this rank's last operation by the same name, and all got its error. Ranks that
  /// announced a failure are accepted only with `accept_failures`. The answer is the same on all ranks that got the
  /// error. To be called in a handler of that error.
  [[nodiscard]] virtual bool same_name_everywhere(bool accept_failures) const noexcept = 0;

  // Messages: not collective, and independent of operations. Any thread may call, at any time.

  /// Starts messages to and from single ranks, in this order. An error is kept in its transfer's `problem`; only misuse
  /// is thrown (usage_error).
  ///
  /// Receives of one source and tag get its messages in the order of posting, also where a later one has looked first.
  /// A receive of `any_message_tag` takes the source's earliest message. A probe (`is_probe`) finishes once there is a
  /// message that no earlier receive wants, and leaves it. `source`, `tag` and `bytes` are set for all of them. No
  /// message to or from `null_rank` comes here.
  void post(std::span<const std::shared_ptr<transfer>> transfers);

  /// Waits until all of these have finished. Another thread may have started them. Without any, it calls the thread
  /// that moves on started messages for which no thread waits, and that otherwise may come a moment later.
  void complete(std::span<const std::shared_ptr<transfer>> transfers);

  /// Looks once whether a probe can finish, and keeps nothing of it. Returns whether it has finished. An error is kept
  /// in its `problem`; only misuse is thrown.
  [[nodiscard]] bool try_probe(const std::shared_ptr<transfer>& one);

  /// Ends a receive that no message has matched yet with cancelled_error, in its `problem`. Returns whether it did;
  /// false for a send, and where the receive is matched or has finished. Throws usage_error in the child of a fork.
  [[nodiscard]] bool withdraw(const transfer& one);

  // The calling thread, and memory.

  /// Makes this rank's waiting operation and all later ones throw. For owners that must not block. Any thread may call.
  virtual void cancel() noexcept = 0;

  /// Prefers sleeping to spinning, for a communication thread that shares its core with computation.
  virtual void set_yields_core(bool /*yields*/) noexcept {}

  /// Says what the calling thread does, which alone gives this group its operations. Where it waits for a rank whose
  /// thread rests here, and that one waits for it in a collective of another group, neither ever comes: that breaks
  /// this group after 5 s. The thread that did a group's last operation counts as the only one that can come to it.
  /// Between machines such waits are not found.
  void set_caller(caller_state state) noexcept;

  /// Returns memory in which this group's operations are fastest: memory that its ranks share, where they share a
  /// machine. It allocates zeros, and may outlive the engine. Any thread may call.
  [[nodiscard]] virtual std::shared_ptr<buffer_memory> memory() const = 0;

  /// Returns whether `share` makes buffers that other ranks reach.
  [[nodiscard]] virtual bool can_share() const noexcept { return false; }
  /// Replaces the whole pages of buffers by memory that all ranks reach. Returns what undoes it when it is destroyed,
  /// which may outlive the engine; null where there is nothing to do. Any thread may call. Throws engine_error where it
  /// cannot be done for one of them; then it is done for none.
  [[nodiscard]] std::shared_ptr<void> share(std::span<const std::span<std::byte>> buffers,
                                            const error_context& context);

 protected:
  [[nodiscard]] bool is_self() const noexcept { return kind_ == kind::self; }

 private:
  kind kind_;
  std::shared_ptr<const group_health> health_;
};

}  // namespace hfcomm::engines

namespace hfcomm::detail {

using engines::host_engine;

}  // namespace hfcomm::detail
