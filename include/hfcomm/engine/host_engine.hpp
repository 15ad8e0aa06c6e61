// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/device_board.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/engine/transfer.hpp>

namespace hfcomm {

/// Takes what the ranks contributed, in pieces. An engine calls it on the calling thread, for each source in chunks of
/// ascending offset; a contribution of 0 bytes comes as one empty chunk. What it throws is thrown by the operation on
/// this rank once the ranks are in step again.
class receiver {
 public:
  virtual void receive(int source, std::span<const std::byte> chunk, std::uint64_t offset, std::uint64_t total) = 0;

  /// Where an engine may put all `total` bytes of `source` itself instead of giving them to `receive`; null where it
  /// may not.
  virtual std::byte* place_for(int /*source*/, std::uint64_t /*total*/) { return nullptr; }

 protected:
  ~receiver() = default;
};

/// For operations without data, and ranks that want none.
class no_receiver final : public receiver {
 public:
  void receive(int, std::span<const std::byte>, std::uint64_t, std::uint64_t) override {}
};

/// What a rank deals out.
struct parcels {
  /// One part for each rank; where `operation::pattern` has this rank send nothing, it may be empty. Not looked at
  /// where the parts are equal (payload::buffer).
  std::span<const std::span<const std::byte>> outgoing{};
  /// Equal parts, one behind the other, each `operation::bytes` long; empty where this rank sends nothing.
  std::span<const std::byte> equal{};
  /// The bytes that this rank wants from each rank; empty where it takes whatever comes. Not looked at where the parts
  /// are equal (payload::buffer).
  std::span<const std::uint64_t> expected{};
  /// Only the lengths are compared: no part is looked at, and none moves. All ranks say so, or none (it is no part of
  /// the signature).
  bool lengths_alone = false;

  [[nodiscard]] std::span<const std::byte> part_for(const operation& call, std::size_t rank) const {
    if (call.content != payload::buffer) {
      return outgoing[rank];
    }
    const auto bytes = static_cast<std::size_t>(call.bytes);
    return equal.empty() ? equal : equal.subspan(rank * bytes, bytes);
  }
};

/// Carries bytes between the ranks of one group. The typed surface turns a call into an `operation` and bytes and hands
/// both to one of these functions; an engine is one class that implements them.
///
/// Every function but the queries is collective unless it says otherwise, compares the ranks' signatures inside the
/// algorithm it runs anyway, and throws
///   mismatch_error  where they differ (on every rank),
///   peer_error      where a rank died, left, or announced that its part failed,
///   timeout_error   where `operation::timeout` passed.
/// One thread at a time; the process group sees to that.
class host_engine {
 public:
  host_engine() = default;
  host_engine(const host_engine&) = delete;
  host_engine& operator=(const host_engine&) = delete;
  virtual ~host_engine() = default;

  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  /// The number of the operation that was begun last, from 1.
  [[nodiscard]] virtual std::uint64_t sequence() const noexcept = 0;
  /// True once a rank is lost: every later call throws the same error.
  [[nodiscard]] virtual bool broken() const noexcept = 0;
  /// What `rank` called as its part of this rank's last operation, with its call site; that operation has completed.
  [[nodiscard]] virtual std::string matching_call(int rank) const = 0;
  /// Inside a handler of the error of this rank's last operation: whether all ranks called it by the same name and
  /// met the error in it, too; with or without those that announced that their part failed. The same answer on all that
  /// did.
  [[nodiscard]] virtual bool same_name_everywhere(bool failures_count) const noexcept = 0;

  /// Moves every contribution to the ranks that receive (see `movement`), and returns when this rank's part is done.
  virtual void exchange(const operation& call, std::span<const std::byte> contribution, receiver& out) = 0;

  /// Reduces equally long buffers. `out` is filled where `call.receives(rank())`; it may be `in` itself.
  virtual void reduce(const operation& call, std::span<const std::byte> in, std::span<std::byte> out) = 0;

  /// Brings each rank its own part: the root's parts to their ranks (movement::from_root), the ranks' parts to the root
  /// (to_root), or everyone's to everyone (to_all). With payload::buffer all parts are `call.bytes` long; otherwise
  /// they may differ, and where one is not what its receiver expects, every rank throws mismatch_error.
  virtual void deal(const operation& call, const parcels& mine, receiver& out) = 0;

  /// Reduces equally long buffers and leaves each rank one part of the result. `parts` has the bytes for each rank, the
  /// same on all ranks (the caller sees to that; it is not compared), and `in` as many as all of them. `out` may be
  /// this rank's part of `in`.
  virtual void reduce_scatter(const operation& call, std::span<const std::byte> in,
                              std::span<const std::uint64_t> parts, std::span<std::byte> out) = 0;

  /// Not an operation: throws what the next one would throw at once (a lost rank, an earlier disagreement), and makes
  /// sure that an `announce` that follows will not wait.
  virtual void prepare(const operation& call) = 0;

  /// Not an operation: memory in which the bytes of the exchange that follows are best put together; may be empty.
  /// Throws what the exchange would throw at once.
  [[nodiscard]] virtual std::span<std::byte> stage(const operation& call) = 0;

  /// Takes part without waiting for anyone's part. With `failure`, every rank that meets this operation throws
  /// peer_error with that text.
  virtual void announce(const operation& call, const std::string* failure) = 0;

  /// Takes part and waits for `source` alone.
  virtual void await(const operation& call, int source) = 0;

  /// A new group of `members`: ranks of this group, in the new group's rank order. Called by every rank of this group,
  /// each with the members of its own new group; a rank without one passes an empty span and gets null.
  virtual std::shared_ptr<host_engine> subgroup(const operation& call, std::span<const int> members) = 0;

  /// Starts messages to and from single ranks, in this order. Not collective, and independent of what is: any thread
  /// may call, at any time. What goes wrong becomes the transfer's `problem`; only misuse is thrown (usage_error).
  virtual void post(std::span<const std::shared_ptr<transfer>> transfers) = 0;

  /// Waits until all of these are finished. They may be another thread's.
  virtual void complete(std::span<const std::shared_ptr<transfer>> transfers) = 0;

  /// Any thread: this rank will not do its part in what is under way, because of an exception. Breaks the group, with
  /// this rank to blame; all ranks' operations and messages throw at once.
  virtual void abandon(const error_context& context) noexcept = 0;

  /// Any thread: makes this rank's waiting operation and all later ones throw. For owners that must not block.
  virtual void cancel() noexcept = 0;

  /// Any thread: this rank gives the group up because of an error of its device plane. `what` goes on a sentence that
  /// begins with this rank.
  virtual void condemn(const error_context& context, const std::string& what) noexcept = 0;
  /// Any thread: a deadline of the device plane has passed; `missing` are those that had not come, `what` a sentence.
  virtual void expire(const error_context& context, const std::string& what,
                      const std::vector<int>& missing) noexcept = 0;

  /// Any thread, not an operation: throws peer_error where the device operation of that number can never end, because
  /// a rank is lost, or has left or refused without having put its part on its device. A `number` of 0 is none of those
  /// that are counted.
  virtual void look(const error_context& context, std::uint64_t number) const = 0;

  /// What `rank` shows of its device operations; null where this engine has no place for it.
  [[nodiscard]] virtual engines::device_board* board(int rank) const noexcept = 0;

  /// Memory in which this group's operations are fastest: that its ranks see, where they share a machine. It gives
  /// zeros. Any thread; it may outlive the engine.
  [[nodiscard]] virtual std::shared_ptr<std::pmr::memory_resource> memory() const = 0;

  /// Prefer sleeping to spinning: for a communication thread that shares its core with computation.
  virtual void set_polite(bool polite) noexcept = 0;
};

}  // namespace hfcomm
