// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/call/call.hpp>
#include <hfcomm/collectives/detail/receivers.hpp>
#include <hfcomm/serialization/std_types.hpp>

/// Many pieces of memory in one call: few operations, whatever the number of pieces, and bounded memory.
namespace hfcomm::detail {

/// One of them.
struct coalesced_piece {
  element_type type = element_type::none;
  std::span<std::byte> bytes;
};

/// Which pieces travel together: neighbours of one type up to `chunk_bytes`, packed, and a piece that has no neighbour
/// to share with as it is, whatever its size.
class coalesced_plan {
 public:
  coalesced_plan(std::span<const coalesced_piece> pieces, std::size_t chunk_bytes, element_type type_if_none) {
    for (const auto& piece : pieces) {
      const std::size_t size = piece.bytes.size();
      if (size == 0) {
        continue;
      }
      if (runs_.empty() || runs_.back().type != piece.type || runs_.back().bytes + size > chunk_bytes) {
        runs_.push_back({piece.type, {}, 0});
      }
      run& open = runs_.back();
      open.pieces.push_back(piece.bytes);
      open.bytes += size;
      if (open.pieces.size() > 1) {
        packed_ = std::max(packed_, open.bytes);
      }
    }
    if (runs_.empty()) {
      runs_.push_back({type_if_none, {}, 0});  // the ranks still have to agree that there is nothing
    }
  }

  struct run {
    element_type type;
    std::vector<std::span<std::byte>> pieces;  // none of them empty
    std::size_t bytes;
  };

  [[nodiscard]] const std::vector<run>& runs() const noexcept { return runs_; }
  /// The memory that packing needs.
  [[nodiscard]] std::size_t packed_bytes() const noexcept { return packed_; }

 private:
  std::vector<run> runs_;
  std::size_t packed_ = 0;
};

/// Says what the pieces are, one text each; only asked where the ranks disagree.
using describe_list = std::function<std::vector<std::string>()>;

/// What all ranks must have in common.
inline std::uint64_t fingerprint_of(std::span<const coalesced_piece> pieces, std::size_t chunk_bytes) noexcept {
  std::uint64_t hash = mix(pieces.size(), chunk_bytes);
  for (const auto& piece : pieces) {
    hash = mix(hash, piece.bytes.size() * 16 + static_cast<std::uint64_t>(piece.type));
  }
  return hash;
}

/// Refuses pieces that cannot be there, and pieces that share a byte: what that would become depends on the chunks.
inline void require_distinct(running_call& running, std::span<const coalesced_piece> pieces) {
  std::vector<std::size_t> order;  // of those that have something, by address
  running.attempt("looking at its spans threw: ", [&] { order.reserve(pieces.size()); });
  for (std::size_t index = 0; index < pieces.size(); ++index) {
    const auto bytes = pieces[index].bytes;
    running.require(bytes.empty() || bytes.data() != nullptr, [&] {
      return "span " + std::to_string(index) + " of the list has " + std::to_string(bytes.size()) +
             " bytes at address 0";
    });
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
      return "spans " + std::to_string(first) + " and " + std::to_string(second) + " of the list overlap";
    });
  }
}

/// Inside a handler: the ranks disagree. Where all of them are in this very call, they tell each other what they
/// brought, and each throws a mismatch_error that names the first difference; otherwise the error is thrown on.
[[noreturn]] inline void explain_mismatch(running_call& running, const operation& call, int ranks,
                                          std::size_t chunk_bytes, const mismatch_error& problem,
                                          const describe_list& describe) {
  if (!running.engine().same_name_everywhere(false)) {
    throw;
  }
  using texts = std::vector<std::string>;
  operation details = object_call<texts>(call.name, movement::to_all, -1, call.where);
  details.timeout = call.timeout;
  texts mine = describe();
  mine.insert(mine.begin(), "chunks of up to " + std::to_string(chunk_bytes) + " bytes");
  std::vector<texts> all(static_cast<std::size_t>(ranks));
  const auto store = [&](int source, texts&& received) { all[static_cast<std::size_t>(source)] = std::move(received); };
  object_receiver<texts, decltype(store)> received(running, store);
  running.engine().exchange(details, encode_contribution(running, details, mine), received);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const std::size_t count = std::max(all[0].size(), all[rank].size());
    for (std::size_t index = 0; index < count; ++index) {
      const auto at = [&](std::size_t who) {
        return index < all[who].size() ? all[who][index] : std::string("nothing");
      };
      if (at(0) != at(rank)) {
        throw mismatch_error(problem.context(),
                             "the lists differ: " + (index == 0 ? "" : "as number " + std::to_string(index - 1) + ' ') +
                                 "rank 0 has " + at(0) + ", rank " + std::to_string(rank) + " has " + at(rank),
                             0, static_cast<int>(rank));
      }
    }
  }
  throw;  // equal lists, but another root or another reduction: it says so
}

/// Takes all pieces through `transfer(call, bytes)`, which changes bytes in place.
template <class Transfer>
void run_coalesced(running_call& running, operation& call, int ranks, std::span<const coalesced_piece> pieces,
                   std::size_t chunk_bytes, bool gives, bool takes, Transfer transfer, const describe_list& describe) {
  require_distinct(running, pieces);
  // As part of the type, because errors show a tag but not this.
  call.type_hash = mix(call.type_hash, fingerprint_of(pieces, chunk_bytes));
  const coalesced_plan plan = running.attempt("packing its spans threw: ", [&] {
    coalesced_plan found(pieces, chunk_bytes, call.element);
    running.scratch().resize(std::max(running.scratch().size(), found.packed_bytes()));
    return found;
  });
  const auto perform = [&](const coalesced_plan::run& run) {
    call.element = run.type;
    call.bytes = run.bytes;
    if (run.pieces.size() <= 1) {
      transfer(call, run.pieces.empty() ? std::span<std::byte>() : run.pieces.front());
      return;
    }
    const std::span<std::byte> packed = std::span(running.scratch()).first(run.bytes);
    std::byte* place = packed.data();
    for (const auto piece : run.pieces) {
      if (gives) {
        std::memcpy(place, piece.data(), piece.size());
      }
      place += piece.size();
    }
    transfer(call, packed);
    place = packed.data();
    for (const auto piece : run.pieces) {
      if (takes) {
        std::memcpy(piece.data(), place, piece.size());
      }
      place += piece.size();
    }
  };
  try {
    perform(plan.runs().front());
  } catch (const mismatch_error& problem) {
    explain_mismatch(running, call, ranks, chunk_bytes, problem, describe);
  }
  for (std::size_t index = 1; index < plan.runs().size(); ++index) {
    perform(plan.runs()[index]);
  }
}

/// Gives every rank the root's bytes. `call` has the name, the type and the root.
inline void broadcast_pieces(operation call, std::span<const coalesced_piece> pieces, std::size_t chunk_bytes,
                             const process_group& group, const describe_list& describe) {
  running_call running(group, call);
  running.require_root();
  const bool gives = group.rank() == call.root;
  const auto transfer = [&](const operation& part, std::span<std::byte> bytes) {
    in_place_receiver received(bytes);
    running.engine().exchange(part, bytes, received);
  };
  run_coalesced(running, call, group.size(), pieces, chunk_bytes, gives, !gives, transfer, describe);
}

/// Reduces every piece, in place, on every rank. `call` has the name, the type and the reduction.
inline void all_reduce_pieces(operation call, std::span<const coalesced_piece> pieces, std::size_t chunk_bytes,
                              const process_group& group, const describe_list& describe) {
  running_call running(group, call);
  require_valid(running, call);
  for (const auto& piece : pieces) {
    if (piece.type != call.element) {
      call.element = piece.type;
      require_valid(running, call);
    }
  }
  const auto transfer = [&](const operation& part, std::span<std::byte> bytes) {
    running.engine().reduce(part, bytes, bytes);
  };
  run_coalesced(running, call, group.size(), pieces, chunk_bytes, true, true, transfer, describe);
}

}  // namespace hfcomm::detail
