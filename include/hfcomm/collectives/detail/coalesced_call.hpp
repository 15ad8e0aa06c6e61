// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <hfcomm/core/element_type.hpp>
#include <hfcomm/core/function_ref.hpp>
#include <hfcomm/engine/operation.hpp>

/// Collectives on many pieces of memory in one call, with few operations and bounded memory.
namespace hfcomm {

class process_group;

namespace detail {

class checked_call;

/// One contiguous piece and its element type.
struct coalesced_piece {
  element_type type = element_type::none;
  std::span<std::byte> bytes;
  reduction_kernel kernel = nullptr;  ///< For `type`, where the pieces are reduced.
};

/// Returns a text for each piece. Called only where the ranks disagree.
using describe_list = function_ref<std::vector<std::string>()>;

/// Returns one text for each piece, of elements of `width` bytes.
std::vector<std::string> describe_spans(const std::vector<coalesced_piece>& pieces, std::size_t width,
                                        std::string_view type);

// Checks of the two operations below. Pieces at address 0 and pieces that share a byte are a usage_error: the result
// would depend on the chunks.
void check_broadcast_pieces(checked_call& running, std::span<const coalesced_piece> pieces);
void check_all_reduce_pieces(checked_call& running, std::span<const coalesced_piece> pieces);

/// Gives every rank the root's bytes. `call` has the name, the type and the root.
void broadcast_pieces(operation call, std::span<const coalesced_piece> pieces, std::size_t chunk_bytes,
                      const process_group& group, describe_list describe);

/// Reduces every piece, in place, on every rank. `call` has the name, the type and the reduction.
void all_reduce_pieces(operation call, std::span<const coalesced_piece> pieces, std::size_t chunk_bytes,
                       const process_group& group, describe_list describe);

}  // namespace detail

}  // namespace hfcomm
