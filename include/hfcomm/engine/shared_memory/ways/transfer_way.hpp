// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

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
};
inline constexpr std::array<std::string_view, 8> tuned_operation_names{
    "broadcast", "gather", "all_gather", "scatter", "all_to_all", "reduce", "all_reduce", "reduce_scatter"};

/// How the bytes of ordinary buffers get from rank to rank.
enum class transfer_medium : std::uint8_t {
  slots,     ///< Through slots, by ordinary stores.
  streamed,  ///< Through slots, by stores past the caches: see copy_streamed.
  kernel,    ///< The kernel copies from the owner's memory: one copy, and a system call for each piece.
  nodes,     ///< Through slots, from NUMA node to NUMA node: see node_chain.
};
inline constexpr std::array<std::string_view, 4> transfer_medium_names{"slots", "streamed", "kernel", "nodes"};

/// A way to do an operation. All ranks of a group use the same one, and all ways give the same bits.
struct transfer_way {
  transfer_medium medium = transfer_medium::slots;
  std::size_t piece = layout::piece_bytes;  ///< Bytes that one rank reads of another in a step.

  /// Copies into memory that other ranks read.
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) const noexcept {
    if (medium == transfer_medium::streamed) {
      detail::copy_streamed(to, from, bytes);
    } else {
      detail::copy_bytes(to, from, bytes);
    }
  }

  [[nodiscard]] friend bool operator==(const transfer_way&, const transfer_way&) = default;
};

/// The ways between which the ranks choose.
inline constexpr std::size_t large_piece_bytes = 4 * layout::piece_bytes;
inline constexpr std::array<transfer_way, 6> transfer_ways{{
    {transfer_medium::streamed, layout::piece_bytes},
    {transfer_medium::streamed, large_piece_bytes},
    {transfer_medium::kernel, layout::piece_bytes},
    {transfer_medium::slots, layout::piece_bytes},
    {transfer_medium::slots, large_piece_bytes},
    {transfer_medium::nodes, layout::piece_bytes},
}};
inline constexpr std::size_t default_way = 3;

/// So many tries in a row of a way by the tuner do not count: each may use a slot for the first time, and its lines are
/// where another way has left them.
inline constexpr unsigned uncounted_tries = layout::depth;
/// So many tries in a row each way gets.
inline constexpr unsigned tries_of_each = 2 * uncounted_tries;
/// After so many operations of a kind and size its way is chosen, if no try had to wait.
inline constexpr int most_tuning_calls = static_cast<int>(tries_of_each * transfer_ways.size()) + 4;

}  // namespace hfcomm::engines
