// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/reduce_op.hpp>
#include <hfcomm/core/shared_buffer.hpp>

namespace hfcomm {

namespace engines {
class host_engine;
struct operation;
}  // namespace engines

namespace detail {
class group_state;
struct group_access;
}  // namespace detail

/// A group of ranks: a cheap handle, copied freely; the group ends with its last handle. Every rank argument of every
/// operation (root, source, destination) is a rank of the group that the operation is given.
///
/// Thread-safety: different groups may be used from different threads at once. One group carries one operation at a
/// time; a second thread that enters gets usage_error.
class process_group {
 public:
  /// The time that an operation waits for the other ranks by default.
  static constexpr std::chrono::nanoseconds default_timeout = std::chrono::minutes(10);

  /// Makes a group of one, in which every operation works.
  process_group();

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  /// Returns the engine that carries host data: "self", "shared_memory", or "hierarchical" where the ranks are on
  /// several machines.
  [[nodiscard]] std::string_view host_backend() const noexcept;
  /// Returns the engine that carries device data: "nccl", "cuda" in a group of one, or "none" before the first device
  /// operation (see connect_device).
  [[nodiscard]] std::string_view device_backend() const noexcept;

  /// Returns whether a rank of the group is lost or a deadline has passed. Then every later call throws the same error.
  [[nodiscard]] bool broken() const noexcept;

  /// Returns the number of the collective that this rank has begun last in this group, from 1, as `error::sequence`
  /// has it; 0 before the first. Equal on all ranks that are in the same collective. An asynchronous one begins when
  /// those before it are done. A collective on a list of spans may take several numbers, and messages take none. A new
  /// group counts anew. Any thread may call. (torch's `getSequenceNumberForGroup`.)
  [[nodiscard]] std::uint64_t sequence_number() const noexcept;

  /// Returns `count` zeros of type T in memory that the ranks of this group share: see shared_buffer. It is private
  /// memory where they are on several machines. Not collective.
  /// Any thread may call. Throws std::bad_alloc.
  template <plain T>
  [[nodiscard]] shared_buffer<T> allocate(std::size_t count) const {
    return shared_buffer<T>(count, shared_memory());
  }
  /// Returns the memory of `allocate`; private memory in a group of one. It may outlive the group.
  [[nodiscard]] std::shared_ptr<buffer_memory> shared_memory() const;

  /// Returns the same group with another deadline for its operations. Zero or less is no deadline; lost peers are still
  /// noticed.
  [[nodiscard]] process_group with_timeout(std::chrono::nanoseconds timeout) const {
    process_group copy = *this;
    copy.timeout_ = timeout;
    return copy;
  }
  [[nodiscard]] std::chrono::nanoseconds timeout() const noexcept { return timeout_; }

  /// Returns the same group, whose collectives through this handle also compare `tag`, an iteration's number for
  /// instance. In a loop with one call, a rank that skips an iteration would pair up with the others' next one. With
  /// tags that is a mismatch_error. 0 is no tag. Messages have their own tags.
  [[nodiscard]] process_group with_tag(std::uint64_t tag) const {
    process_group copy = *this;
    copy.tag_ = tag;
    return copy;
  }
  [[nodiscard]] std::uint64_t tag() const noexcept { return tag_; }

  /// Returns the same group, whose device operations through this handle are compared over the host plane before they
  /// are put on a device. A mismatch, also of the lengths of uneven parts, is then a mismatch_error with both ranks and
  /// call sites. Without checks it is a hang or wrong numbers. Each operation costs an exchange among all ranks.
  /// Messages are not compared. All ranks do it, or none. The variable HFCOMM_CHECK_DEVICE=1 does it for all groups.
  [[nodiscard]] process_group with_device_checks(bool checks = true) const {
    process_group copy = *this;
    copy.checks_devices_ = checks;
    return copy;
  }
  [[nodiscard]] bool checks_devices() const noexcept { return checks_devices_; }

  /// Returns the same group, in some of whose small operations this rank does not wait for ranks that it receives
  /// nothing from: `broadcast` (also of lists of objects), `scatter`, and `gather` and `reduce` of equally many
  /// elements or of plain objects. It leaves as soon as what it gives is safe, and may be up to 32 operations ahead of
  /// the others. Each rank decides for itself; the choice is not compared. Small is where a rank gives at most 1 KiB to
  /// the others; an object counts with its encoding. A scatter of objects or of parts with counts adds 24 bytes for
  /// each rank. Longer operations, gathers of other objects and of parts with counts (a rank does not know how long the
  /// others' are), other collectives, reductions of spans by a callable, and groups on several machines are as without
  /// it. (MPI's rooted collectives may return like that.)
  ///
  /// The comparison of the ranks' calls is late on a rank that has left. It learns of an error of that operation
  /// (mismatch_error; peer_error where another rank failed in it) by a later one, which throws it once:
  /// - by one that it leaves early, too, or a longer broadcast or scatter in which it receives. That one does its work
  ///   first, and the other ranks do not notice;
  /// - at the latest by its next other operation, which waits for all ranks. Then that one does not take place, and the
  ///   other ranks get peer_error from it.
  /// The text has the number of the operation that it is about, and both call sites. A rank that is lost after it has
  /// left is not missed there. The next operation that waits for it throws peer_error. Errors that no operation has
  /// found are lost when the group is destroyed.
  [[nodiscard]] process_group with_early_leave(bool leaves = true) const {
    process_group copy = *this;
    copy.leaves_early_ = leaves;
    return copy;
  }
  [[nodiscard]] bool leaves_early() const noexcept { return leaves_early_; }

  /// Makes new groups, one for each `color` (>= 0), and returns this rank's. In a group the ranks are ordered by `key`,
  /// then by their rank here. Collective: every rank of this group calls it. Throws usage_error for a negative color;
  /// `subgroup` leaves ranks out. Where this group is connected for device operations, the new ones are, too.
  [[nodiscard]] process_group split(int color, int key = 0, call_site where = call_site::current()) const;

  /// Makes a group of these ranks, in this order; returns nullopt on a rank that is not among them. Collective: every
  /// rank of this group calls it, with the same list (mismatch_error otherwise). Throws usage_error for an empty list,
  /// a rank that this group does not have, or one named twice.
  [[nodiscard]] std::optional<process_group> subgroup(std::span<const int> ranks,
                                                      call_site where = call_site::current()) const;
  [[nodiscard]] std::optional<process_group> subgroup(std::initializer_list<int> ranks,
                                                      call_site where = call_site::current()) const {
    return subgroup(std::span<const int>(ranks.begin(), ranks.size()), where);
  }

  /// Returns whether both are handles of the same group.
  [[nodiscard]] friend bool operator==(const process_group& left, const process_group& right) noexcept {
    return left.state_ == right.state_;
  }

  /// Writes this rank, the number of ranks and the engine: "rank 1 of 4 (shared_memory)".
  friend std::ostream& operator<<(std::ostream& out, const process_group& group);

 private:
  friend struct detail::group_access;
  process_group(std::shared_ptr<engines::host_engine> engine, std::chrono::nanoseconds timeout);

  /// Returns a new group of these ranks, with a device plane where this one has one.
  [[nodiscard]] std::optional<process_group> part(const engines::operation& call, std::span<const int> members) const;

  std::shared_ptr<detail::group_state> state_;
  int rank_ = 0;
  int size_ = 1;
  std::chrono::nanoseconds timeout_ = default_timeout;
  std::uint64_t tag_ = 0;
  bool checks_devices_;
  bool leaves_early_ = false;
};

}  // namespace hfcomm
