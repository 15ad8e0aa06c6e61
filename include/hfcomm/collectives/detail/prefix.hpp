// SPDX-License-Identifier: MIT
#pragma once

#include <type_traits>

#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/collectives/detail/buffer_collectives.hpp>
#include <hfcomm/collectives/detail/fold_elements.hpp>

namespace hfcomm {

/// The parameter type of scans of elements of type T: as `reduction`, without averages and premultiplied sums. Those
/// are no fold of the elements. Multiply them first, and scan the sum.
template <class T>
class scan_reduction : public detail::or_group {
 public:
  constexpr scan_reduction(const process_group& group) noexcept : or_group(group), op_(reduce_op::sum) {}
  constexpr scan_reduction(reduce_op op) noexcept : op_(op) {}

  template <reduce_kind Kind>
    requires(!detail::needs_floating_point(Kind))
  constexpr scan_reduction(typed_reduce_op<Kind> op) noexcept : op_(reduction<T>(op)) {}

  template <reduce_kind Kind>
    requires(detail::needs_floating_point(Kind))
  scan_reduction(typed_reduce_op<Kind>) = delete;  // a scan has no average or premultiplied sum: scan the sum

  [[nodiscard]] constexpr operator reduce_op() const noexcept { return op_; }

 private:
  reduce_op op_;
};

/// Scans: folds of the values of a rank and of the ranks before it. Every rank collects the values and folds its own.
namespace detail {

/// For parameters: T is deduced from the other arguments, and the reduction converts to it.
template <class T>
using scan_op_for = scan_reduction<std::type_identity_t<T>>;
template <class R>
using scan_op_on = scan_reduction<value_of<R>>;

/// Reduces the elements of the ranks up to this one into this rank's `out`.
void scan_buffer(operation&& call, const const_elements& in, const elements& out, const process_group& group);
/// The same of the ranks before this one. Without such ranks each element of `out` becomes the reduction's identity.
void exclusive_scan_buffer(operation&& call, const const_elements& in, const elements& out, const process_group& group);

/// Requires elements as `check_all_reduce` does, and a reduction that scans have.
void check_scan(checked_call& running, const const_elements& in, const const_elements& out);

/// Calls `fold` with each chunk of the elements of the first `rows` ranks, on every rank. `out` is only checked.
void scan_by_fold(operation&& call, const const_elements& in, const elements& out, int rows, chunk_fold fold,
                  const process_group& group);

}  // namespace detail

}  // namespace hfcomm
