// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <functional>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/call/call.hpp>

/// Buffers reduced by a callable: the engines know kernels only, so the elements come as bytes and are folded here.
namespace hfcomm::detail {

/// How many bytes of all ranks' elements together a rank holds at a time.
inline constexpr std::size_t fold_table_bytes = std::size_t{4} << 20;

template <class T>
T element_at(std::span<const std::byte> table, std::size_t index) {
  std::array<std::byte, sizeof(T)> bytes{};
  std::memcpy(bytes.data(), table.data() + index * sizeof(T), sizeof(T));
  return std::bit_cast<T>(bytes);
}

/// `part[i] = op(op(element i of rank 0, of rank 1), of rank 2)...`; the table holds one rank's elements after
/// another's.
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

/// In place, on the ranks that receive. The elements come in chunks, of which each is an operation of the engine. Where
/// the callable throws, this rank's part in the next one is a failure; so there is one more at the end.
template <class T, class BinaryOp>
void fold_elements(operation_name name, movement pattern, std::span<T> data, int root, BinaryOp& op,
                   const process_group& group, std::source_location where) {
  operation call = buffer_call<T>(name, pattern, data.size(), root, where);
  call.element = element_type::none;  // what tells it from a reduction by a kernel, which goes another way
  running_call running(group, call);
  if (pattern == movement::to_root) {
    running.require_root();
  }
  require_memory(running, data);
  const bool folds = call.receives(group.rank());
  const auto ranks = static_cast<std::size_t>(group.size());
  const std::size_t chunk = std::max<std::size_t>(fold_table_bytes / ranks / sizeof(T), 1);
  const std::size_t table_bytes = folds ? std::min(chunk, data.size()) * sizeof(T) * ranks : 0;
  auto& table = running.scratch();
  running.attempt("it found no memory: ", [&] { table.resize(std::max(table.size(), table_bytes)); });

  // A meeting without elements, described as the whole call.
  no_receiver nothing;
  const auto meet = [&] { running.engine().exchange(call, {}, nothing); };
  const auto be_whole = [&] {
    call.pattern = movement::none;
    call.bytes = data.size_bytes();
  };
  if (data.size() > chunk) {
    be_whole();
    meet();  // about the whole length, before any part moves
  }
  std::size_t begin = 0;
  do {
    const auto part = data.subspan(begin, std::min(chunk, data.size() - begin));
    const auto received = std::span(table).first(folds ? part.size_bytes() * ranks : 0);
    call.pattern = pattern;
    call.bytes = part.size_bytes();
    table_receiver receiver(received, group.rank());
    running.engine().exchange(call, std::as_bytes(part), receiver);
    be_whole();
    if (folds) {
      running.attempt("the callable threw: ", [&] { fold_part(part, received, op); });
    }
    begin += part.size();
  } while (begin < data.size());
  if (!data.empty()) {
    meet();
  }
}

}  // namespace hfcomm::detail
