// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>

#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/collectives/detail/coalesced_call.hpp>
#include <hfcomm/collectives/detail/receivers.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/serialization/std_types.hpp>

namespace hfcomm::detail {

/// Pieces that are sent in one operation.
struct coalesced_chunk {
  element_type type;
  reduction_kernel kernel;
  std::vector<std::span<std::byte>> pieces;  // none of them empty
  std::size_t bytes;
};

/// A partition of pieces into chunks. A chunk is either neighbours of one type up to `chunk_bytes`, which are packed,
/// or one piece of any size, which is not.
class coalesced_plan {
 public:
  coalesced_plan(std::span<const coalesced_piece> pieces, std::size_t chunk_bytes, element_type type_if_none) {
    for (const auto& piece : pieces) {
      const std::size_t size = piece.bytes.size();
      if (size == 0) {
        continue;
      }
      if (chunks_.empty() || chunks_.back().type != piece.type || chunks_.back().bytes + size > chunk_bytes) {
        chunks_.push_back({piece.type, piece.kernel, {}, 0});
      }
      coalesced_chunk& last = chunks_.back();
      last.pieces.push_back(piece.bytes);
      last.bytes += size;
      if (last.pieces.size() > 1) {
        packed_ = std::max(packed_, last.bytes);
      }
    }
    if (chunks_.empty()) {
      chunks_.push_back({type_if_none, nullptr, {}, 0});  // the ranks still have to agree that there is nothing
    }
  }

  [[nodiscard]] const std::vector<coalesced_chunk>& chunks() const noexcept { return chunks_; }
  /// Returns the number of bytes that packing needs.
  [[nodiscard]] std::size_t packed_bytes() const noexcept { return packed_; }

 private:
  std::vector<coalesced_chunk> chunks_;
  std::size_t packed_ = 0;
};

/// Returns a hash of the properties that must be equal on all ranks.
HFCOMM_INLINE std::uint64_t hash_of_pieces(std::span<const coalesced_piece> pieces, std::size_t chunk_bytes) noexcept {
  std::uint64_t hash = mix(pieces.size(), chunk_bytes);
  for (const auto& piece : pieces) {
    hash = mix(hash, piece.bytes.size() * 16 + static_cast<std::uint64_t>(piece.type));
  }
  return hash;
}

/// Requires pieces in memory that share no byte.
HFCOMM_INLINE void require_distinct(checked_call& running, std::span<const coalesced_piece> pieces) {
  std::vector<std::size_t> order;  // of the pieces that are not empty, by address
  running.attempt("looking at its spans threw: ", [&] { order.reserve(pieces.size()); });
  for (std::size_t index = 0; index < pieces.size(); ++index) {
    const auto bytes = pieces[index].bytes;
    running.require(bytes.empty() || bytes.data() != nullptr,
                    [&] { return concat({"span ", index, " of the list has ", bytes.size(), " bytes at address 0"}); });
    if (!bytes.empty()) {
      order.push_back(index);
    }
  }
  const std::less<const std::byte*> before;
  const auto at = [&](std::size_t index) { return pieces[index].bytes; };
  std::sort(order.begin(), order.end(),
            [&](std::size_t left, std::size_t right) { return before(at(left).data(), at(right).data()); });
  for (std::size_t next = 1; next < order.size(); ++next) {
    running.require(!overlap(at(order[next - 1]), at(order[next])), [&] {
      const auto [first, second] = std::minmax(order[next - 1], order[next]);
      return concat({"spans ", first, " and ", second, " of the list overlap"});
    });
  }
}

HFCOMM_INLINE std::vector<std::string> describe_spans(const std::vector<coalesced_piece>& pieces, std::size_t width,
                                                      std::string_view type) {
  std::vector<std::string> texts;
  texts.reserve(pieces.size());
  for (const auto& piece : pieces) {
    texts.push_back(concat({"a span of ", piece.bytes.size() / width, " x ", type}));
  }
  return texts;
}

HFCOMM_INLINE void check_broadcast_pieces(checked_call& running, std::span<const coalesced_piece> pieces) {
  running.require_root();
  require_distinct(running, pieces);
}

HFCOMM_INLINE void check_all_reduce_pieces(checked_call& running, std::span<const coalesced_piece> pieces) {
  require_valid(running);
  for (const auto& piece : pieces) {
    require_valid(running, piece.type);
  }
  require_distinct(running, pieces);
}

/// Throws a mismatch_error that names the first difference between the ranks' lists, if all ranks are in this call.
/// They exchange descriptions for that. Otherwise throws `problem` again. To be called in a handler of `problem`.
[[noreturn]] HFCOMM_INLINE void throw_list_mismatch(running_call& running, const operation& call,
                                                    std::size_t chunk_bytes, const mismatch_error& problem,
                                                    describe_list describe) {
  if (!running.engine().same_name_everywhere(false)) {
    throw;
  }
  using texts = std::vector<std::string>;
  operation details = object_call<texts>(call.name, movement::to_all, -1, call.where);
  details.timeout = call.timeout;
  texts mine = describe();
  mine.insert(mine.begin(), concat({"chunks of up to ", chunk_bytes, " bytes"}));
  const auto bytes = encode_contribution(running, details, mine);
  const auto all = exchange_encoded<texts>(running, details, bytes, running.size());
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const std::size_t count = std::max(all[0].size(), all[rank].size());
    for (std::size_t index = 0; index < count; ++index) {
      const auto at = [&](std::size_t who) {
        return index < all[who].size() ? all[who][index] : std::string("nothing");
      };
      if (at(0) != at(rank)) {
        throw_error<mismatch_error>(problem.context(),
                                    {"the lists differ: ", index == 0 ? "" : concat({"as number ", index - 1, ' '}),
                                     "rank 0 has ", at(0), ", rank ", rank, " has ", at(rank)},
                                    0, static_cast<int>(rank));
      }
    }
  }
  throw;  // the lists are equal: the root or the reduction differs, and the error says so
}

/// The direction of a transfer: whether this rank's bytes are sent, and whether they are replaced.
struct piece_roles {
  bool gives = true;
  bool takes = true;
};

/// Passes all pieces through `transfer(call, bytes)`, which changes bytes in place.
HFCOMM_INLINE void run_coalesced(running_call& running, operation& call, std::span<const coalesced_piece> pieces,
                                 std::size_t chunk_bytes, piece_roles roles,
                                 function_ref<void(const operation& call, std::span<std::byte> bytes)> transfer,
                                 describe_list describe) {
  // The list is part of the type's hash, not of the tag, because error texts show a tag.
  call.type_hash = mix(call.type_hash, hash_of_pieces(pieces, chunk_bytes));
  const coalesced_plan plan = running.attempt("packing its spans threw: ", [&] {
    coalesced_plan found(pieces, chunk_bytes, call.element);
    running.scratch().resize(std::max(running.scratch().size(), found.packed_bytes()));
    return found;
  });
  const auto perform = [&](const coalesced_chunk& chunk) {
    call.element = chunk.type;
    call.kernel = chunk.kernel;
    call.bytes = chunk.bytes;
    if (chunk.pieces.size() <= 1) {
      transfer(call, chunk.pieces.empty() ? std::span<std::byte>() : chunk.pieces.front());
      return;
    }
    const std::span<std::byte> packed = std::span(running.scratch()).first(chunk.bytes);
    std::byte* place = packed.data();
    for (const auto piece : chunk.pieces) {
      if (roles.gives) {
        std::memcpy(place, piece.data(), piece.size());
      }
      place += piece.size();
    }
    transfer(call, packed);
    place = packed.data();
    for (const auto piece : chunk.pieces) {
      if (roles.takes) {
        std::memcpy(piece.data(), place, piece.size());
      }
      place += piece.size();
    }
  };
  try {
    perform(plan.chunks().front());
  } catch (const mismatch_error& problem) {
    throw_list_mismatch(running, call, chunk_bytes, problem, describe);
  }
  for (std::size_t index = 1; index < plan.chunks().size(); ++index) {
    perform(plan.chunks()[index]);
  }
}

HFCOMM_INLINE void broadcast_pieces(operation call, std::span<const coalesced_piece> pieces, std::size_t chunk_bytes,
                                    const process_group& group, describe_list describe) {
  running_call running(group, call);
  check_broadcast_pieces(running, pieces);
  const bool gives = group.rank() == call.root;
  const auto transfer = [&](const operation& part, std::span<std::byte> bytes) {
    in_place_receiver received(bytes);
    running.engine().exchange(part, bytes, received);
  };
  run_coalesced(running, call, pieces, chunk_bytes, {.gives = gives, .takes = !gives}, transfer, describe);
}

HFCOMM_INLINE void all_reduce_pieces(operation call, std::span<const coalesced_piece> pieces, std::size_t chunk_bytes,
                                     const process_group& group, describe_list describe) {
  running_call running(group, call);
  check_all_reduce_pieces(running, pieces);
  const auto transfer = [&](const operation& part, std::span<std::byte> bytes) {
    running.engine().reduce(part, bytes, bytes);
  };
  run_coalesced(running, call, pieces, chunk_bytes, {}, transfer, describe);
}

}  // namespace hfcomm::detail
