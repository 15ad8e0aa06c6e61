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
  const auto parts = parts_of(in.bytes(), in_counts, in.width);
  const auto places = parts_of(out.bytes(), out_counts, out.width);
  const auto expected = byte_counts(out_counts, out.width);
  parts_receiver received(places, group.rank());
  running.engine().all_to_all_v(call, {.outgoing = parts, .expected = expected}, received);
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
  const auto ranks = static_cast<std::size_t>(group.size());
  std::vector<std::uint64_t> expected(ranks);
  std::vector<std::span<std::byte>> places(ranks);
  if (group.rank() == call.root) {
    expected = byte_counts(counts, out.width);
    places = parts_of(out.bytes(), counts, out.width);
  }
  std::vector<std::span<const std::byte>> parts(ranks);
  parts[static_cast<std::size_t>(call.root)] = in.bytes();
  parts_receiver received(places, group.rank());
  running.engine().all_to_all_v(call, {.outgoing = parts, .expected = expected}, received);
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

HFCOMM_INLINE void receive_from_root(running_call& running, const operation& call,
                                     std::span<const std::span<const std::byte>> parts, std::span<std::byte> out) {
  const auto root = static_cast<std::size_t>(call.root);
  std::vector<std::uint64_t> expected(parts.size());
  expected[root] = out.size();
  std::vector<std::span<std::byte>> places(parts.size());
  places[root] = out;
  parts_receiver received(places, running.rank());
  running.allow_early_leave();
  running.engine().all_to_all_v(call, {.outgoing = parts, .expected = expected}, received);
}

HFCOMM_INLINE void scatter_parts(operation&& call, const const_elements& in, const elements& out,
                                 std::span<const std::size_t> counts, const process_group& group) {
  running_call running(group, call);
  check_scatter(running, in, out, counts);
  const auto ranks = static_cast<std::size_t>(group.size());
  std::vector<std::span<const std::byte>> parts(ranks);
  if (group.rank() == call.root) {
    call.bytes = in.bytes().size();
    parts = parts_of(in.bytes(), counts, in.width);
  }
  receive_from_root(running, call, parts, out.bytes());
}

}  // namespace hfcomm::detail
