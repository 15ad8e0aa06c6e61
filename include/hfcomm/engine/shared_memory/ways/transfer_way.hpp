// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <hfcomm/core/element_type.hpp>
#include <hfcomm/engine/chooser.hpp>
#include <hfcomm/engine/reduction/copy_bytes.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>

namespace hfcomm::engines {

/// The operations that are tuned apart from each other.
enum class tuned_operation : std::uint8_t {
  broadcast,
  gather,
  all_gather,
  scatter,
  all_to_all,
  reduce,
  all_reduce,
  reduce_scatter,
  narrow_reduce,  ///< A reduce of floats of 8 and 16 bits, which takes longer for each byte.
  narrow_all_reduce,
  narrow_reduce_scatter,
};
inline constexpr std::array<std::string_view, 11> tuned_operation_names{
    "broadcast",  "gather",         "all_gather",    "scatter",           "all_to_all",           "reduce",
    "all_reduce", "reduce_scatter", "narrow_reduce", "narrow_all_reduce", "narrow_reduce_scatter"};

/// Returns the one of a reduction that is tuned: reduce, all_reduce or reduce_scatter of such elements.
[[nodiscard]] constexpr tuned_operation tuned_reduction(tuned_operation wide, element_type element) noexcept {
  constexpr int narrow = static_cast<int>(tuned_operation::narrow_reduce) - static_cast<int>(tuned_operation::reduce);
  const bool is_narrow = is_floating_point(element) && size_of(element) < 4;
  return static_cast<tuned_operation>(static_cast<int>(wide) + (is_narrow ? narrow : 0));
}

/// How the bytes of ordinary buffers get from rank to rank.
enum class transfer_medium : std::uint8_t {
  slots,     ///< Through slots, by ordinary stores.
  streamed,  ///< Through slots, by stores past the caches: see copy_streamed.
  kernel,    ///< The kernel copies from the owner's memory: one copy, and a system call for each piece.
  nodes,     ///< Through slots, from NUMA node to NUMA node: see node_chain.
  moved,     ///< Through slots, by the instruction that copies: see copy_by_instruction.
};
inline constexpr std::array<std::string_view, 5> transfer_medium_names{"slots", "streamed", "kernel", "nodes", "moved"};

/// A way to do an operation. All ranks of a group use the same one, and all ways give the same bits.
struct transfer_way {
  transfer_medium medium = transfer_medium::slots;
  std::size_t piece = layout::piece_bytes;  ///< Bytes that one rank reads of another in a step.

  /// Copies into memory that other ranks read.
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) const noexcept {
    if (medium == transfer_medium::streamed) {
      detail::copy_streamed(to, from, bytes);
    } else if (medium == transfer_medium::moved) {
      detail::copy_by_instruction(to, from, bytes);
    } else {
      detail::copy_bytes(to, from, bytes);
    }
  }

  [[nodiscard]] friend bool operator==(const transfer_way&, const transfer_way&) = default;
};

/// The ways between which the ranks choose. Those of one medium follow one another, with longer and longer pieces.
inline constexpr std::array<transfer_way, 10> transfer_ways{{
    {transfer_medium::streamed, layout::piece_bytes},
    {transfer_medium::streamed, 4 * layout::piece_bytes},
    {transfer_medium::kernel, layout::piece_bytes},
    {transfer_medium::slots, layout::piece_bytes},
    {transfer_medium::slots, 2 * layout::piece_bytes},
    {transfer_medium::slots, 4 * layout::piece_bytes},
    {transfer_medium::nodes, layout::piece_bytes},
    {transfer_medium::moved, layout::piece_bytes / 8},
    {transfer_medium::moved, layout::piece_bytes / 4},
    {transfer_medium::moved, layout::piece_bytes},
}};
static_assert(transfer_ways.size() <= chooser::most_candidates);
inline constexpr int kernel_way = 2;
inline constexpr int default_way = 3;
inline constexpr int nodes_way = 6;
static_assert(transfer_ways[kernel_way].medium == transfer_medium::kernel &&
              transfer_ways[nodes_way].medium == transfer_medium::nodes);

/// After so many operations of a kind and size every way has been tried, if no try had to wait.
inline constexpr int most_tuning_calls =
    chooser::first_uses + static_cast<int>(transfer_ways.size() + 2) * (chooser::uncounted + chooser::counted + 1) +
    chooser::uncounted_if_slow;

}  // namespace hfcomm::engines
