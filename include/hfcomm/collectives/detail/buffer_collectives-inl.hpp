// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include <hfcomm/call/uneven_parts.hpp>
#include <hfcomm/collectives/detail/buffer_collectives.hpp>
#include <hfcomm/collectives/detail/receivers.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/engine/table_receiver.hpp>
#include <hfcomm/group/detail/running_call.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE void exchange_places(running_call& running, const operation& call, bytes_of_ranks parts,
                                   memory_of_ranks to) {
  std::vector<std::uint64_t> expected;
  expected.reserve(to.size());
  for (const auto place : to) {
    expected.push_back(place.size());
  }
  parts_receiver received(to, running.rank());
  running.engine().all_to_all_v(call, {.outgoing = parts, .expected = expected}, received);
}

HFCOMM_INLINE void send_to_root(running_call& running, const operation& call, std::span<const std::byte> mine,
                                memory_of_ranks to) {
  std::vector<std::span<const std::byte>> parts(to.size());
  parts[static_cast<std::size_t>(call.root)] = mine;
  exchange_places(running, call, parts, to);
}

HFCOMM_INLINE void receive_from_root(running_call& running, const operation& call, bytes_of_ranks parts,
                                     std::span<std::byte> out) {
  std::vector<std::span<std::byte>> to(parts.size());
  to[static_cast<std::size_t>(call.root)] = out;
  running.allow_early_leave();
  exchange_places(running, call, parts, to);
}

HFCOMM_INLINE void all_gather_buffer(operation&& call, const const_elements& in, const elements& out,
                                     const process_group& group) {
  running_call running(group, call);
  check_all_gather(running, in, out);
  table_receiver table(out.bytes(), group.rank());
  running.engine().exchange(call, in.bytes(), table);
}

HFCOMM_INLINE void all_gather_parts(operation&& call, const const_elements& in, const elements& out,
                                    std::span<const std::size_t> counts, const process_group& group) {
  call.type_hash = mix(call.type_hash, fingerprint(counts));
  running_call running(group, call);
  check_all_gather(running, in, out, counts);
  const auto places = parts_of(out.bytes(), counts, out.width);
  parts_receiver received(places, group.rank());
  running.engine().exchange(call, in.bytes(), received);
}

HFCOMM_INLINE void all_reduce_buffer(operation&& call, const const_elements& in, const elements& out,
                                     const process_group& group) {
  running_call running(group, call);
  check_all_reduce(running, in, out);
  running.engine().reduce(call, in.bytes(), out.bytes());
}

HFCOMM_INLINE void all_to_all_buffer(operation&& call, const const_elements& in, const elements& out,
                                     const process_group& group) {
  running_call running(group, call);
  check_all_to_all(running, in, out);
  table_receiver received(out.bytes(), group.rank());
  running.engine().all_to_all_v(call, {.equal = in.bytes()}, received);
}

HFCOMM_INLINE void all_to_all_parts(operation&& call, const const_elements& in, std::span<const std::size_t> in_counts,
                                    const elements& out, std::span<const std::size_t> out_counts,
                                    const process_group& group) {
  running_call running(group, call);
  check_all_to_all(running, in, in_counts, out, out_counts);
  exchange_places(running, call, parts_of(in.bytes(), in_counts, in.width),
                  parts_of(out.bytes(), out_counts, out.width));
}

HFCOMM_INLINE void broadcast_buffer(operation&& call, const elements& data, const process_group& group) {
  running_call running(group, call);
  check_broadcast(running, data);
  in_place_receiver received(data.bytes());
  running.allow_early_leave();
  running.engine().exchange(call, data.bytes(), received);
}

HFCOMM_INLINE void gather_buffer(operation&& call, const const_elements& in, const elements& out,
                                 const process_group& group) {
  running_call running(group, call);
  check_gather(running, in, out);
  table_receiver table(out.bytes(), group.rank());
  running.allow_early_leave();
  running.engine().exchange(call, in.bytes(), table);
}

HFCOMM_INLINE void gather_parts(operation&& call, const const_elements& in, const elements& out,
                                std::span<const std::size_t> counts, const process_group& group) {
  running_call running(group, call);
  check_gather(running, in, out, counts);
  std::vector<std::span<std::byte>> to(static_cast<std::size_t>(group.size()));
  if (group.rank() == call.root) {
    to = parts_of(out.bytes(), counts, out.width);
  }
  send_to_root(running, call, in.bytes(), to);
}

HFCOMM_INLINE void reduce_buffer(operation&& call, const const_elements& in, const elements& out,
                                 const process_group& group) {
  running_call running(group, call);
  check_reduce(running, in, out);
  running.allow_early_leave();
  running.engine().reduce(call, in.bytes(), out.bytes());
}

HFCOMM_INLINE void reduce_scatter_buffer(operation&& call, const const_elements& in, const elements& out,
                                         const process_group& group) {
  running_call running(group, call);
  check_reduce_scatter(running, in, out);
  const auto lengths = byte_counts(equal_counts(out.count, group.size()), out.width);
  running.engine().reduce_scatter(call, in.bytes(), lengths, out.bytes());
}

HFCOMM_INLINE void reduce_scatter_parts(operation&& call, const const_elements& in, const elements& out,
                                        std::span<const std::size_t> counts, const process_group& group) {
  call.type_hash = mix(call.type_hash, fingerprint(counts));
  running_call running(group, call);
  check_reduce_scatter(running, in, out, counts);
  const auto lengths = byte_counts(counts, out.width);
  running.engine().reduce_scatter(call, in.bytes(), lengths, out.bytes());
}

HFCOMM_INLINE void scatter_buffer(operation&& call, const const_elements& in, const elements& out,
                                  const process_group& group) {
  running_call running(group, call);
  check_scatter(running, in, out);
  rank_parts parts;
  if (group.rank() == call.root) {
    parts.equal = in.bytes();
  }
  std::vector<std::span<std::byte>> places(static_cast<std::size_t>(group.size()));
  places[static_cast<std::size_t>(call.root)] = out.bytes();
  parts_receiver received(places, group.rank());
  running.allow_early_leave();
  running.engine().all_to_all_v(call, parts, received);
}

HFCOMM_INLINE void scatter_parts(operation&& call, const const_elements& in, const elements& out,
                                 std::span<const std::size_t> counts, const process_group& group) {
  running_call running(group, call);
  check_scatter(running, in, out, counts);
  std::vector<std::span<const std::byte>> parts(static_cast<std::size_t>(group.size()));
  if (group.rank() == call.root) {
    call.bytes = in.bytes().size();
    parts = parts_of(in.bytes(), counts, in.width);
  }
  receive_from_root(running, call, parts, out.bytes());
}

}  // namespace hfcomm::detail
