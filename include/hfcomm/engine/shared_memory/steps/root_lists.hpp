// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>

/// The lengths in a gatherv and a scatterv, as a rank compares them that has left the operation early.
namespace hfcomm::engines {

/// Stands for a length that its receiver does not know before.
inline constexpr std::uint64_t any_length = ~std::uint64_t{0};

/// A part whose length is not what its receiver expects.
struct unfit_part {
  int from;
  int to;
  std::uint64_t coming;  // bytes
  std::uint64_t wanted;
};

/// Throws the error of such a part in `step`. `call` has the parts' type.
template <class Context>
[[noreturn, gnu::cold]] void throw_unfit_part(const Context& context, const group_memory& memory, std::uint64_t step,
                                              const operation& call, const unfit_part& part) {
  const auto count = [&](std::uint64_t bytes) { return elements_text(call, bytes); };
  const auto call_of = [&](int rank) {
    return detail::concat(
        {"rank ", rank, " called ", describe_call(memory.cell(rank, step), memory.block(rank).sites)});
  };
  detail::throw_error<mismatch_error>(
      context(),
      {"rank ", part.from, " sends ", count(part.coming), " to rank ", part.to, ", which expects ", count(part.wanted),
       " from it: ", call_of(part.from), ", ", call_of(part.to)},
      part.from, part.to);
}

/// Compares the lengths of a gatherv's or scatterv's step that all ranks have published. The root's lists are in its
/// small slot: the bytes that it sends to each rank, then those that it expects from each. Each other rank's length is
/// in its cell. Throws mismatch_error.
template <class Context>
void check_root_lists(const Context& context, const group_memory& memory, int root, std::uint64_t step) {
  const auto ranks = static_cast<std::size_t>(memory.sizes().ranks);
  const layout::flag_cell& own = memory.cell(root, step);
  const std::uint64_t what = own.what.load(std::memory_order_relaxed);
  const bool gathers = static_cast<movement>(what >> 28 & 0xf) == movement::to_root;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::uint64_t at_root = 0;
    std::memcpy(&at_root, memory.small_slot(root, step) + (gathers ? ranks + rank : rank) * sizeof(at_root),
                sizeof(at_root));
    const int other = static_cast<int>(rank);
    const std::uint64_t there = memory.cell(other, step).bytes.load(std::memory_order_relaxed);
    if (other != root && at_root != any_length && at_root != there) {
      const operation call{.name = "", .element = static_cast<element_type>(what >> 8 & 0xff)};
      throw_unfit_part(context, memory, step, call,
                       gathers ? unfit_part{other, root, there, at_root} : unfit_part{root, other, at_root, there});
    }
  }
}

}  // namespace hfcomm::engines
