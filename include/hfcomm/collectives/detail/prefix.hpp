// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <functional>
#include <source_location>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/collectives/detail/fold_elements.hpp>
#include <hfcomm/collectives/detail/receivers.hpp>

namespace hfcomm {

/// The parameter type of scans of elements of type T: as `reduction`, without averages and premultiplied sums. Those
/// are no fold of the elements. Multiply them first, and scan the sum.
template <class T>
class scan_reduction {
 public:
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

/// Reduces the elements of the first `rows` ranks into this rank's `out`. Without such ranks each element of `out`
/// becomes the reduction's identity.
void scan_by_kernel(operation&& call, const const_elements& in, const elements& out, int rows,
                    const process_group& group);

/// Requires elements as `check_all_reduce` does, and a reduction that scans have.
void check_scan(checked_call& running, const const_elements& in, const const_elements& out);

/// Calls `fold` with each chunk of the elements of the first `rows` ranks, on every rank. `out` is only checked.
void scan_by_fold(operation&& call, const const_elements& in, const elements& out, int rows, chunk_fold fold,
                  const process_group& group);

/// Scans elements by a kernel. `name` is `scan` or `exclusive_scan`.
template <class T>
void scan_elements(operation_name name, const const_elements& in, const elements& out, int rows, reduce_op op,
                   const process_group& group, std::source_location where) {
  scan_by_kernel(reduction_call<T>(name, movement::to_all, in.count, -1, op, where), in, out, rows, group);
}

/// Calculates `part[i] = op(op(init, element i of rank 0), of rank 1)...`. The table holds one rank's elements after
/// another's.
template <class T, class BinaryOp>
void fold_part_from(const T& init, std::span<T> part, std::span<const std::byte> table, BinaryOp& op) {
  const std::size_t rows = part.empty() ? 0 : table.size() / part.size_bytes();
  for (std::size_t i = 0; i < part.size(); ++i) {
    T value = init;
    for (std::size_t row = 0; row < rows; ++row) {
      value = static_cast<T>(std::invoke(op, T(value), element_at<T>(table, row * part.size() + i)));
    }
    part[i] = value;
  }
}

/// Returns the objects of the first `rows` ranks.
template <class T>
std::vector<T> collect_first_objects(operation_name name, const T& value, int rows, const process_group& group,
                                     std::source_location where) {
  operation call = object_call<T>(name, movement::to_all, -1, where);
  running_call running(group, call);
  const auto mine = encode_contribution(running, call, value);
  std::vector<T> result(static_cast<std::size_t>(rows));
  const auto store = [&](int source, T&& object) { result[static_cast<std::size_t>(source)] = std::move(object); };
  object_receiver<T, decltype(store)> objects(running, store);
  first_ranks_receiver received(objects, rows);
  running.engine().exchange(call, mine, received);
  return result;
}

}  // namespace detail

}  // namespace hfcomm
