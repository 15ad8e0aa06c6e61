// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/concepts.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm {

class shared_range;

namespace detail {

/// Implementation of `share`.
[[nodiscard]] shared_range share_bytes(std::span<const std::span<std::byte>> buffers, const process_group& group,
                                       call_site where);

}  // namespace detail

/// A handle of a shared buffer: while it lives, the buffer is in memory that the ranks of a group share (see `share`).
/// Movable, not copyable; it may outlive the group. The buffer must outlive it.
///
/// The destructor gives the buffer private memory again, with its content and at its addresses. No operation may use
/// the buffer then, and no thread may write to it. Where the machine has no memory for that, the buffer keeps what it
/// has, for good, and the group's operations take it for ordinary memory.
class [[nodiscard("the buffer is shared until this is destroyed: auto shared = hfcomm::share(buffer);")]] shared_range {
 public:
  /// Makes an object without a buffer.
  shared_range() = default;
  shared_range(shared_range&& other) noexcept : replacement_(std::move(other.replacement_)) {}
  shared_range& operator=(shared_range&& other) noexcept {
    replacement_ = std::exchange(other.replacement_, nullptr);
    return *this;
  }
  ~shared_range() = default;

  /// Returns whether a part of the buffer is in shared memory; false for buffers without a whole page, and in a group
  /// of one.
  [[nodiscard]] bool is_shared() const noexcept { return replacement_ != nullptr; }

 private:
  friend shared_range detail::share_bytes(std::span<const std::span<std::byte>> buffers, const process_group& group,
                                          call_site where);
  explicit shared_range(std::shared_ptr<void> replacement) noexcept : replacement_(std::move(replacement)) {}

  std::shared_ptr<void> replacement_;
};

/// Puts an ordinary buffer, a std::vector for instance, into memory that the ranks of a group share. The group's later
/// operations on it, or on parts of it, then do what they do with a shared_buffer. Its addresses and its content stay
/// as they are. Not collective: some ranks may do it and others not. (What ncclCommRegister and cudaHostRegister are
/// for devices: the memory is the caller's, and outlives the handle.)
///
///     std::vector<float> gradients(n);
///     auto shared = hfcomm::share(gradients);
///     hfcomm::all_reduce(gradients);  // in place
///
/// The whole pages of the buffer are replaced. Its ends may be beside other memory on their pages, which is not shared;
/// each operation copies them, less than two pages. A buffer without a whole page stays as it is, and so do all in a
/// group of one. It takes about a millisecond for each MiB, and for that time twice the memory.
///
/// To share a buffer once more, end its shared_range first: `shared = hfcomm::share(buffer)` in a loop is an error,
/// since the old one still lives when the new one is made (`shared = {};` before it ends it).
///
/// While it is shared, the buffer must not be freed, grown, given to `mremap` or `munmap`, or be shared once more. The
/// child of a fork shares it with its parent: each sees what the other writes. In the child, destroying the
/// shared_range gives the child a copy; that must come before the parent destroys its own, which gives the pages back:
/// after that the child must not use the buffer. Locks (`mlock`), advice (`madvise`) and registrations with a device
/// driver (`cudaHostRegister`) of the buffer are lost, here and when the shared_range is destroyed. See
/// docs/shared-memory.md.
///
/// After an operation that threw, other ranks may be writing to the buffer until its shared_range is destroyed.
///
/// Any thread may call, while no operation uses the buffer and no thread writes to it. Throws engine_error with the
/// reason where it cannot be done: for memory that is read-only, the mapping of a file (arrays with initialisers are
/// one), on the stack of the main thread, of huge pages (hugetlb), not mapped, shared already, or that overlaps another
/// shared range of the group; where the machine has no memory; and where the group has none to share, because its ranks
/// are on several machines or a limit (`ulimit -v`, `ulimit -f`) leaves no room. Throws usage_error in the child of a
/// fork. The buffer is then as it was. Other threads' stacks are not recognised; do not share them. In a group of one
/// nothing is checked.
template <lasting_buffer R>
  requires writable_buffer<R>
shared_range share(R&& buffer, const process_group& group = world(), call_site where = call_site::current()) {
  const std::span<std::byte> bytes = detail::writable_bytes_of(buffer);
  return detail::share_bytes({&bytes, 1}, group, where);
}

/// Shares a list of buffers, such as the parameters of a model, in one call: all of them, or none where it throws.
/// That is quicker than a call for each, on kernels that cannot tell the place of one (before Linux 6.11).
///
///     std::vector<std::vector<float>> parameters = ...;
///     auto shared = hfcomm::share(parameters);
template <std::ranges::forward_range L>
  requires(!buffer<L> && writable_buffer<std::ranges::range_reference_t<L>> &&
           lasting_buffer<std::ranges::range_reference_t<L>> &&
           (std::ranges::borrowed_range<L> || std::ranges::view<std::ranges::range_value_t<L>>))
shared_range share(L&& buffers, const process_group& group = world(), call_site where = call_site::current()) {
  std::vector<std::span<std::byte>> bytes;
  for (auto&& one : buffers) {
    bytes.push_back(detail::writable_bytes_of(one));
  }
  return detail::share_bytes(bytes, group, where);
}

}  // namespace hfcomm
