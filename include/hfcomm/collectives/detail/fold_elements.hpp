// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <functional>
#include <source_location>
#include <span>

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

/// Calculates `part[i] = op(op(element i of rank 0, of rank 1), of rank 2)...`. The table holds one rank's elements
/// after another's.
template <class T, class BinaryOp>
void fold_part(std::span<T> part, std::span<const std::byte> table, BinaryOp& op) {
  const std::size_t ranks = part.empty() ? 0 : table.size() / part.size_bytes();
  for (std::size_t i = 0; i < part.size(); ++i) {
    T value = element_at<T>(table, i);
    for (std::size_t rank = 1; rank < ranks; ++rank) {
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

/// Folds `data` in place, on the ranks that receive.
template <class T, class BinaryOp>
void fold_elements(operation_name name, movement pattern, std::span<T> data, int root, BinaryOp& op,
                   const process_group& group, std::source_location where) {
  const auto fold = [&](std::size_t offset, std::size_t bytes, std::span<const std::byte> table) {
    fold_part(data.subspan(offset / sizeof(T), bytes / sizeof(T)), table, op);
  };
  fold_chunks(buffer_call<T>(name, pattern, data.size(), root, where), elements_of(data), fold, group);
}

}  // namespace hfcomm::detail
