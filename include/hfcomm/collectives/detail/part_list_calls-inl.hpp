// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/call/uneven_parts.hpp>
#include <hfcomm/collectives/detail/buffer_collectives.hpp>
#include <hfcomm/collectives/detail/coalesced_call-inl.hpp>
#include <hfcomm/collectives/detail/part_list_calls.hpp>
#include <hfcomm/collectives/detail/receivers.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/group/detail/running_call.hpp>

namespace hfcomm::detail {

template <class Part>
std::vector<std::size_t> counts_of(std::span<const Part> list) {
  std::vector<std::size_t> counts;
  counts.reserve(list.size());
  for (const Part& part : list) {
    counts.push_back(part.count);
  }
  return counts;
}

/// Returns the memory of the parts, which are checked.
template <class Part>
auto places_of(std::span<const Part> list) {
  std::vector<decltype(list.front().bytes())> found;
  found.reserve(list.size());
  for (const Part& part : list) {
    found.push_back(part.bytes());
  }
  return found;
}

/// Returns the bytes of all parts; any number where they are not in memory.
HFCOMM_INLINE std::size_t total_bytes_of(const_part_list list) {
  std::size_t total = 0;
  for (const const_elements& part : list) {
    total += part.bytes().size();
  }
  return total;
}

/// Requires one part for each rank, in memory. The bytes of all parts together fit into memory, too.
template <class Part>
void require_parts(checked_call& running, std::span<const Part> list, const char* what) {
  running.require(list.size() == static_cast<std::size_t>(running.size()),
                  [&] { return concat({what, " list has ", list.size(), " views for ", running.size(), " ranks"}); });
  std::size_t total = 0;
  for (const const_elements part : list) {
    require_memory(running, part);
    const auto most = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / part.width;
    running.require(!__builtin_add_overflow(total, part.count, &total) && total <= most,
                    [&] { return concat({what, " list has more elements than memory has room for"}); });
  }
}

/// Requires parts of which none overlaps another one.
HFCOMM_INLINE void require_distinct_parts(checked_call& running, part_list list) {
  std::vector<coalesced_piece> pieces;
  pieces.reserve(list.size());
  for (const elements& part : list) {
    pieces.push_back({element_type::none, part.bytes()});
  }
  require_distinct(running, pieces);
}

/// Requires that no part of the input overlaps one of the output, whose parts are distinct.
HFCOMM_INLINE void require_lists_apart(checked_call& running, const_part_list in, part_list out) {
  const std::less<const std::byte*> before;
  auto memory = places_of(out);
  std::erase_if(memory, [](const auto& place) { return place.empty(); });
  std::sort(memory.begin(), memory.end(),
            [&](const auto& left, const auto& right) { return before(left.data(), right.data()); });
  for (const const_elements& part : in) {
    const auto bytes = part.bytes();
    // The last place that begins before the part ends also ends last. So it overlaps the part if any place does.
    const auto behind = std::partition_point(memory.begin(), memory.end(), [&](const auto& place) {
      return before(place.data(), bytes.data() + bytes.size());
    });
    if (behind != memory.begin()) {
      require_apart(running, bytes, *std::prev(behind));
    }
  }
}

HFCOMM_INLINE void check_all_gather_list(checked_call& running, const const_elements& in, part_list out) {
  require_memory(running, in);
  require_parts(running, out, "the output");
  require_distinct_parts(running, out);
  const auto own = static_cast<std::size_t>(running.rank());
  require_own(running, in.count, out[own].count);
  for (std::size_t rank = 0; rank < out.size(); ++rank) {
    require_apart(running, out[rank].bytes(), in.bytes(),
                  rank == own ? std::span<const std::byte>(out[rank].bytes()) : std::span<const std::byte>());
  }
}

HFCOMM_INLINE void check_gather_list(checked_call& running, const const_elements& in, part_list out) {
  running.require_root();
  if (running.rank() == running.call().root) {
    check_all_gather_list(running, in, out);
  } else {
    require_memory(running, in);
  }
}

/// Requires that `out` is this rank's part of the input, or overlaps none.
HFCOMM_INLINE void require_output_apart(checked_call& running, const_part_list in, const const_elements& out) {
  const auto own = static_cast<std::size_t>(running.rank());
  require_own(running, in[own].count, out.count);
  for (std::size_t rank = 0; rank < in.size(); ++rank) {
    require_apart(running, in[rank].bytes(), out.bytes(),
                  rank == own ? in[rank].bytes() : std::span<const std::byte>());
  }
}

HFCOMM_INLINE void check_scatter_list(checked_call& running, const_part_list in, const const_elements& out) {
  running.require_root();
  require_memory(running, out);
  if (running.rank() == running.call().root) {
    require_parts(running, in, "the root's input");
    require_output_apart(running, in, out);
  }
}

HFCOMM_INLINE void check_all_to_all_list(checked_call& running, const_part_list in, part_list out) {
  require_parts(running, in, "the input");
  require_parts(running, out, "the output");
  require_distinct_parts(running, out);
  const auto own = static_cast<std::size_t>(running.rank());
  require_own(running, in[own].count, out[own].count);
  require_lists_apart(running, in, out);
}

HFCOMM_INLINE void check_reduce_scatter_list(checked_call& running, const_part_list in, const const_elements& out) {
  require_valid(running);
  require_memory(running, out);
  require_parts(running, in, "the input");
  require_output_apart(running, in, out);
}

HFCOMM_INLINE void all_gather_list(operation&& call, const const_elements& in, part_list out,
                                   const process_group& group) {
  call.type_hash = mix(call.type_hash, fingerprint(counts_of(out)));
  running_call running(group, call);
  check_all_gather_list(running, in, out);
  const auto to = places_of(out);
  parts_receiver received(to, group.rank());
  running.engine().exchange(call, in.bytes(), received);
}

HFCOMM_INLINE void gather_list(operation&& call, const const_elements& in, part_list out, const process_group& group) {
  running_call running(group, call);
  check_gather_list(running, in, out);
  std::vector<std::span<std::byte>> to(static_cast<std::size_t>(group.size()));
  if (group.rank() == call.root) {
    to = places_of(out);
  }
  send_to_root(running, call, in.bytes(), to);
}

HFCOMM_INLINE void scatter_list(operation&& call, const_part_list in, const elements& out, const process_group& group) {
  running_call running(group, call);
  check_scatter_list(running, in, out);
  std::vector<std::span<const std::byte>> parts(static_cast<std::size_t>(group.size()));
  if (group.rank() == call.root) {
    call.bytes = total_bytes_of(in);
    parts = places_of(in);
  }
  receive_from_root(running, call, parts, out.bytes());
}

HFCOMM_INLINE void all_to_all_list(operation&& call, const_part_list in, part_list out, const process_group& group) {
  call.bytes = total_bytes_of(in);
  running_call running(group, call);
  check_all_to_all_list(running, in, out);
  exchange_places(running, call, places_of(in), places_of(out));
}

/// Returns the parts one after another: where they are, if they follow each other, else in the group's memory.
HFCOMM_INLINE std::span<const std::byte> join_parts(running_call& running, const_part_list list) {
  const std::size_t total = total_bytes_of(list);
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  bool follow_each_other = true;
  for (const const_elements& part : list) {
    const auto bytes = part.bytes();
    if (bytes.empty()) {
      continue;
    }
    follow_each_other = follow_each_other && (begin == nullptr || end == bytes.data());
    begin = begin == nullptr ? bytes.data() : begin;
    end = bytes.data() + bytes.size();
  }
  if (follow_each_other) {
    return {begin, total};
  }
  std::vector<std::byte>& scratch = running.scratch();
  running.attempt("packing its views threw: ", [&] { scratch.resize(std::max(scratch.size(), total)); });
  std::byte* place = scratch.data();
  for (const const_elements& part : list) {
    const auto bytes = part.bytes();
    place = std::copy(bytes.begin(), bytes.end(), place);
  }
  return std::span(scratch).first(total);
}

HFCOMM_INLINE void reduce_scatter_list(operation&& call, const_part_list in, const elements& out,
                                       const process_group& group) {
  const auto counts = counts_of(in);
  call.type_hash = mix(call.type_hash, fingerprint(counts));
  call.bytes = total_bytes_of(in);
  running_call running(group, call);
  check_reduce_scatter_list(running, in, out);
  const auto joined = join_parts(running, in);
  const auto lengths = byte_counts(counts, out.width);
  running.engine().reduce_scatter(call, joined, lengths, out.bytes());
}

}  // namespace hfcomm::detail
