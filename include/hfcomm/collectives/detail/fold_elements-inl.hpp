// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include <hfcomm/collectives/detail/fold_elements.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/engine/table_receiver.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE void fold_chunks(
    operation call, const fold_data& data,
    function_ref<void(std::size_t offset, std::size_t bytes, std::span<const std::byte> table)> fold,
    const process_group& group) {
  const movement pattern = call.pattern;
  call.element = element_type::none;  // so it does not match a reduction by a kernel, which has a type
  running_call running(group, call);
  if (pattern == movement::to_root) {
    running.require_root();
  }
  running.require(data.problem.empty(), [&] { return data.problem; });
  const std::size_t total = data.bytes.size();
  const bool folds = call.receives(group.rank());
  const auto ranks = static_cast<std::size_t>(group.size());
  const std::size_t chunk =
      std::max<std::size_t>(fold_table_bytes / ranks / data.element_bytes, 1) * data.element_bytes;
  const std::size_t table_bytes = folds ? std::min(chunk, total) * ranks : 0;
  auto& table = running.scratch();
  running.attempt("out of memory: ", [&] { table.resize(std::max(table.size(), table_bytes)); });

  const auto describe_whole_call = [&] {
    call.pattern = movement::none;
    call.bytes = total;
  };
  no_receiver nothing;
  if (total > chunk) {
    describe_whole_call();
    running.engine().exchange(call, {}, nothing);  // compares the total lengths before any chunk is sent
  }
  std::size_t begin = 0;
  do {
    const auto part = data.bytes.subspan(begin, std::min(chunk, total - begin));
    const auto received = std::span(table).first(folds ? part.size() * ranks : 0);
    call.pattern = pattern;
    call.bytes = part.size();
    table_receiver receiver(received, group.rank());
    running.engine().exchange(call, part, receiver);
    describe_whole_call();
    if (folds) {
      running.attempt("the callable threw: ", [&] { fold(begin, part.size(), received); });
    }
    begin += part.size();
  } while (begin < total);
  if (total != 0) {
    running.engine().exchange(call, {}, nothing);
  }
}

}  // namespace hfcomm::detail
