// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <functional>
#include <span>
#include <type_traits>
#include <utility>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/core/function_ref.hpp>

/// Reductions of buffers by a callable. The engines reduce with their own kernels only, so the elements are exchanged
/// as bytes and folded here.
namespace hfcomm::detail {

/// The maximum number of bytes of all ranks' elements that a rank holds at a time.
inline constexpr std::size_t fold_table_bytes = std::size_t{4} << 20;

template <class T>
T element_at(std::span<const std::byte> table, std::size_t index) {
  std::array<std::byte, sizeof(T)> bytes{};
  std::memcpy(bytes.data(), table.data() + index * sizeof(T), sizeof(T));
  return std::bit_cast<T>(bytes);
}

/// Calculates `part[i] = op(op(element i of rank 0, of rank 1), of rank 2)...`, or with `init` `op(op(*init, element i
/// of rank 0), of rank 1)...`. The table holds one rank's elements after another's.
template <class T, class BinaryOp>
void fold_part(const T* init, std::span<T> part, std::span<const std::byte> table, BinaryOp& op) {
  const std::size_t ranks = part.empty() ? 0 : table.size() / part.size_bytes();
  for (std::size_t i = 0; i < part.size(); ++i) {
    T value = init != nullptr ? *init : element_at<T>(table, i);
    for (std::size_t rank = init != nullptr ? 0 : 1; rank < ranks; ++rank) {
      value = static_cast<T>(std::invoke(op, T(value), element_at<T>(table, rank * part.size() + i)));
    }
    part[i] = value;
  }
}

/// Folds one chunk of the elements; the table holds that chunk of the first ranks, one after another.
using chunk_fold = function_ref<void(std::size_t offset, std::size_t bytes, std::span<const std::byte> table)>;

/// Exchanges the elements in chunks, of which each is an operation of the engine, and calls `fold` for each chunk on
/// the ranks that receive. Where `fold` throws, this rank fails in the next operation; so the last chunk is followed by
/// one without elements.
void fold_chunks(operation call, const const_elements& data, chunk_fold fold, const process_group& group);

/// The same for a call whose arguments are checked, without the operation after the last chunk. The table has the
/// elements of the first `rows` ranks.
void fold_checked_chunks(running_call& running, operation& call, const const_elements& in, int rows, chunk_fold fold);

/// Tells whether the last `fold` of every rank has succeeded: throws peer_error where one has thrown.
void finish_fold(running_call& running, const operation& call);

/// Returns a function that folds chunks into their places in `out`.
template <class T, class BinaryOp>
auto fold_into(std::span<T> out, const std::type_identity_t<T>* init, BinaryOp& op) {
  return [out, init, &op](std::size_t offset, std::size_t bytes, std::span<const std::byte> table) {
    fold_part(init, out.subspan(offset / sizeof(T), bytes / sizeof(T)), table, op);
  };
}

/// Folds `data` in place, on the ranks that receive.
template <class T, class BinaryOp>
void fold_elements(operation&& call, std::span<T> data, BinaryOp& op, const process_group& group) {
  fold_chunks(std::move(call), elements_of(data), fold_into(data, nullptr, op), group);
}

inline constexpr auto check_fold = [](checked_call& running, auto data, const auto& /*op*/) {
  check_contribution(running, elements_of(data));
};

/// Starts the same.
template <class T, class BinaryOp>
work<void> start_to_fold(const operation& call, std::span<T> data, BinaryOp op, const process_group& group) {
  const auto run = [](operation&& begun, std::span<T> own, BinaryOp& its_op, const process_group& its_group) {
    fold_elements(std::move(begun), own, its_op, its_group);
  };
  return start_on(call, check_fold, run, group, data, std::move(op));
}

}  // namespace hfcomm::detail
