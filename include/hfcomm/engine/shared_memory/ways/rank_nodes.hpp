// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <sys/mman.h>

#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/steps.hpp>
#include <hfcomm/machine/numa_nodes.hpp>

namespace hfcomm::engines {

/// Moves what `rank` writes, its part of the group's memory, to the node where it runs.
///
/// It lies with its writer and not with its readers. A line that a rank writes comes to its node in any case, and
/// readers take it from that node's caches. Cells, results and most slots have readers on all nodes, and whom a message
/// goes to is not known before. The pages of a heap are not here: they come with each allocation, from the node of the
/// thread that allocates, unless the process has another policy.
///
/// All pages have been made on the node of the rank that made the group. A rank moves its own before any other rank
/// maps them, since pages that several processes have mapped stay. So ranks map each other's slots when they first read
/// them. The cells may stay where another rank waits for this one already; they are few, and live in caches.
inline void move_to_node(const group_memory& memory, int rank, int node) noexcept {
  const layout::dimensions& sizes = memory.sizes();
  const auto move = [&](std::byte* begin, std::size_t bytes) {
    const std::size_t page = layout::page_bytes();
    const std::size_t before = static_cast<std::size_t>(begin - memory.segment()->data()) % page;
    // Only pages that this process has mapped can be moved.
    ::madvise(begin - before, layout::round_up(before + bytes, page), rendezvous::shared_segment::populate_write);
    static_cast<void>(rendezvous::prefer_node({begin, bytes}, node));
  };
  move(reinterpret_cast<std::byte*>(&memory.block(rank)), sizeof(layout::rank_block));
  move(memory.slot(rank, 0), sizes.slot_stride() * layout::depth);
  move(memory.message_slot(rank, 0), sizes.message_slot_bytes * layout::message_slot_count);
}

/// The NUMA nodes of a group's ranks. Each rank publishes its own when the group is made, and reads the others' once
/// all have taken a step.
class rank_nodes {
 public:
  /// Maps this rank's memory, on its node where the machine has several. `local_rank` is its number on this machine.
  /// Throws engine_error where HFCOMM_NUMA_NODES is wrong.
  rank_nodes(const lockstep& steps, int local_rank) : steps_(steps) {
    const group_memory& memory = steps.memory();
    const rendezvous::numa_place place = rendezvous::place_of_rank(local_rank);
    memory.block(steps.rank()).node = place.node;
    if (place.memory_node == rendezvous::numa_nodes::unknown || steps.size() == 1 || memory.spans_machines()) {
      memory.populate();
    } else {
      move_to_node(memory, steps.rank(), place.memory_node);
    }
  }
  rank_nodes(const rank_nodes&) = delete;
  rank_nodes& operator=(const rank_nodes&) = delete;

  /// Returns the nodes of all ranks; null before the first step, where the ranks are on several machines, where a rank
  /// has no node of its own, and where all have the same. All ranks that make the same call get the same.
  [[nodiscard]] const group_placement* placement() {
    if (!is_known_ && steps_.all_have_published()) {
      is_known_ = true;
      placement_ = read();
    }
    return placement_.size() != 0 ? &placement_ : nullptr;
  }

 private:
  /// Returns what `placement` describes; an empty one where that is null.
  [[nodiscard]] group_placement read() const {
    const group_memory& memory = steps_.memory();
    std::vector<int> node_of;
    bool is_one_node = true;
    for (int rank = 0; rank < steps_.size(); ++rank) {
      node_of.push_back(memory.block(rank).node);
      if (node_of.back() < 0) {
        return {};
      }
      is_one_node = is_one_node && node_of.back() == node_of.front();
    }
    return is_one_node || memory.spans_machines() ? group_placement() : group_placement(node_of);
  }

  const lockstep& steps_;
  bool is_known_ = false;
  group_placement placement_;
};

}  // namespace hfcomm::engines
