// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>

#include <hfcomm/collectives/detail/fold_elements.hpp>
#include <hfcomm/collectives/detail/receivers.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/table_receiver.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE void fold_checked_chunks(running_call& running, operation& call, const const_elements& in, int rows,
                                       chunk_fold fold) {
  const movement pattern = call.pattern;
  const std::size_t total = in.bytes().size();
  const bool folds = call.receives(running.rank());
  const auto ranks = static_cast<std::size_t>(running.size());
  const std::size_t chunk = std::max<std::size_t>(fold_table_bytes / ranks / in.width, 1) * in.width;
  const std::size_t table_bytes = std::min(chunk, total) * static_cast<std::size_t>(rows);
  auto& table = running.scratch();
  running.attempt("out of memory: ", [&] { table.resize(std::max(table.size(), table_bytes)); });

  const auto describe_whole_call = [&] {
    call.pattern = movement::none;
    call.bytes = total;
  };
  if (total > chunk) {
    describe_whole_call();
    running.exchange_nothing();  // compares the total lengths before any chunk is sent
  }
  std::size_t begin = 0;
  do {
    const auto part = in.bytes().subspan(begin, std::min(chunk, total - begin));
    const auto received = std::span(table).first(part.size() * static_cast<std::size_t>(rows));
    call.pattern = pattern;
    call.bytes = part.size();
    table_receiver rows_of_table(received, running.rank());
    first_ranks_receiver receiver(rows_of_table, rows);
    running.engine().exchange(call, part, receiver);
    describe_whole_call();
    if (folds) {
      running.attempt("the callable threw: ", [&] { fold(begin, part.size(), received); });
    }
    begin += part.size();
  } while (begin < total);
}

HFCOMM_INLINE void finish_fold(running_call& running, const operation& call) {
  if (call.bytes != 0) {
    running.exchange_nothing();
  }
}

HFCOMM_INLINE void fold_chunks(operation call, const const_elements& data, chunk_fold fold,
                               const process_group& group) {
  call.element = element_type::none;  // so it does not match a reduction by a kernel, which has a type
  running_call running(group, call);
  check_contribution(running, data);
  const int rows = call.receives(group.rank()) ? group.size() : 0;
  fold_checked_chunks(running, call, data, rows, fold);
  finish_fold(running, call);
}

}  // namespace hfcomm::detail
