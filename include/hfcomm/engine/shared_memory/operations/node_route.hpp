// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <hfcomm/core/element_type.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/operations/sliced_chunks.hpp>

namespace hfcomm::engines {

/// The way of a buffer's chunks along the chain of NUMA nodes, as one rank sees it.
///
/// A chunk is divided into lanes, one for each rank of the largest node. On each node, one rank carries a lane.
class node_route {
 public:
  /// `in_place`: the buffers are read where they are, and not through slots.
  node_route(const group_placement& nodes, const layout::dimensions& sizes, const operation& call, int rank,
             std::size_t bytes, bool in_place)
      : nodes_(nodes),
        rank_(rank),
        node_(nodes.machine_of(rank)),
        lanes_(nodes.most_on_a_machine()),
        in_place_(in_place),
        chunks_(bytes, size_of(call.element), lanes_,
                most_in_lane(nodes, sizes, bytes, turns_of_chunk(nodes, call, in_place), in_place) *
                    static_cast<std::size_t>(lanes_)) {
    const auto node = static_cast<std::size_t>(node_);
    const std::size_t last_fold = 2 * static_cast<std::size_t>(nodes.machines() - 1) + (in_place ? 0 : 2);
    const bool to_all = call.pattern == movement::to_all;
    fold = 2 * node + (in_place ? 0 : 2);
    staging = in_place ? never : 2 * node;
    relay = to_all && !is_last() ? last_fold + 2 : never;
    if (!in_place && call.receives(rank)) {
      delivery = last_fold + (to_all && !is_last() ? 4 : 2);
    }
    turns = chunks_.count() + turns_of_chunk(nodes, call, in_place);
  }

  // The turns in which this rank handles chunk 0. It handles each chunk one turn after the chunk before.
  static constexpr std::size_t never = SIZE_MAX;
  std::size_t staging = never;   // copies its elements to its slot, except those of the lanes that it carries
  std::size_t fold = never;      // folds the lanes that it carries
  std::size_t relay = never;     // fetches the results of these lanes from the last node
  std::size_t delivery = never;  // copies the other results from slots to its output
  std::size_t turns = 0;         // of the operation

  [[nodiscard]] const sliced_chunks& chunks() const noexcept { return chunks_; }
  [[nodiscard]] int lanes() const noexcept { return lanes_; }
  [[nodiscard]] int node() const noexcept { return node_; }
  [[nodiscard]] int last() const noexcept { return nodes_.machines() - 1; }
  [[nodiscard]] bool is_first() const noexcept { return node_ == 0; }
  [[nodiscard]] bool is_last() const noexcept { return node_ == last(); }
  /// Returns the ranks of this rank's node.
  [[nodiscard]] std::span<const int> locals() const { return nodes_.ranks_of(node_); }
  /// Returns the rank of a node that carries a lane.
  [[nodiscard]] int carrier(int node, int lane) const {
    const auto ranks = nodes_.ranks_of(node);
    return ranks[static_cast<std::size_t>(lane) % ranks.size()];
  }
  [[nodiscard]] bool is_carried(int lane) const { return carrier(node_, lane) == rank_; }

  /// Returns where in its carrier's slot a lane's sum up to that node lies. A carrier stages no elements there.
  [[nodiscard]] std::size_t sum_place(int node, int lane) const {
    return chunks_.place(in_place_ ? lane / ranks_on(node) : lane);
  }
  /// Returns where in its carrier's slot a lane's result lies that was fetched from the last node.
  [[nodiscard]] std::size_t relay_place(int lane) const { return chunks_.place(lanes_ + lane / ranks_on(node_)); }

  /// Calls `handle(lane, offset, bytes)` for the lanes of a chunk that have elements; the offset is that in the buffer.
  template <class Handle>
  void for_each_lane(std::size_t chunk, Handle&& handle) const {
    for (int lane = 0; lane < lanes_; ++lane) {
      const auto [begin, end] = chunks_.elements(chunk, lane);
      if (begin != end) {
        handle(lane, begin * chunks_.width(), (end - begin) * chunks_.width());
      }
    }
  }

 private:
  [[nodiscard]] int ranks_on(int node) const { return static_cast<int>(nodes_.ranks_of(node).size()); }

  /// Returns the bytes that a lane of a chunk may have. A slot has room for the elements of all lanes, unless they are
  /// read in place, and once more for those that a rank carries. Short buffers are divided into many chunks all the
  /// same, because the pipeline takes `fill` turns more than there are chunks.
  static std::size_t most_in_lane(const group_placement& nodes, const layout::dimensions& sizes, std::size_t bytes,
                                  std::size_t fill, bool in_place) {
    const int lanes = nodes.most_on_a_machine();
    int fewest = lanes;
    for (int node = 0; node < nodes.machines(); ++node) {
      fewest = std::min(fewest, static_cast<int>(nodes.ranks_of(node).size()));
    }
    const int carried = (lanes + fewest - 1) / fewest;
    const int parts = (in_place ? 0 : lanes) + carried;
    const std::size_t room = std::min(sizes.slot_bytes / static_cast<std::size_t>(parts), layout::piece_bytes);
    const std::size_t share = bytes / (static_cast<std::size_t>(lanes) * chunks_per_fill * fill);
    return std::min(room, std::max(least_lane, share));
  }
  static constexpr std::size_t chunks_per_fill = 8;
  static constexpr std::size_t least_lane = 2048;

  /// Returns the turns from a chunk's first to its last.
  static std::size_t turns_of_chunk(const group_placement& nodes, const operation& call, bool in_place) {
    const bool to_all = call.pattern == movement::to_all;
    return 2 * static_cast<std::size_t>(nodes.machines() - 1) + (to_all ? 2 : 0) + (in_place ? 0 : 4);
  }

  const group_placement& nodes_;
  int rank_;
  int node_;
  int lanes_;
  bool in_place_;
  sliced_chunks chunks_;
};

}  // namespace hfcomm::engines
