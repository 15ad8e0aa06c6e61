// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>

#include <hfcomm/call/argument_checks.hpp>
#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE std::string undefined_reduction(reduce_kind op, std::string_view elements) {
  return concat({"the ", to_string(op), " of ", elements, " elements is not defined; ",
                 needs_floating_point(op) ? "convert to a floating-point type, or reduce the sum"
                 : needs_order(op)        ? "complex numbers have no order"
                 : is_logical(op)         ? "complex numbers are neither true nor false"
                                          : "it is there for integers only"});
}

HFCOMM_INLINE void require_factor(checked_call& running) {
  const operation& call = running.call();
  if (call.op == reduce_kind::premultiplied_sum && call.factor != call.factor) {
    running.refuse("the factor of the premultiplied sum is not a number");
  }
}

HFCOMM_INLINE void require_valid(checked_call& running, element_type elements) {
  if (!valid(running.call().op, elements)) {
    running.refuse(undefined_reduction(running.call().op, to_string(elements)));
  }
  require_factor(running);
}

HFCOMM_INLINE bool is_there(const const_elements& range) noexcept {
  return range.count == 0 ||
         (range.data != nullptr &&
          range.count <= static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / range.width);
}

HFCOMM_INLINE std::string memory_problem(const const_elements& range) {
  const std::string count = std::to_string(range.count);
  return range.data == nullptr ? concat({"a buffer of ", count, " elements is at address 0"})
                               : concat({"no memory has room for ", count, " elements"});
}

HFCOMM_INLINE void require_memory(checked_call& running, const const_elements& range) {
  if (!is_there(range)) [[unlikely]] {
    running.refuse(memory_problem(range));
  }
}

HFCOMM_INLINE bool overlap(std::span<const std::byte> one, std::span<const std::byte> other) noexcept {
  const std::less<const std::byte*> before;
  return !one.empty() && !other.empty() && before(one.data(), other.data() + other.size()) &&
         before(other.data(), one.data() + one.size());
}

HFCOMM_INLINE void require_apart(checked_call& running, std::span<const std::byte> in, std::span<const std::byte> out,
                                 std::span<const std::byte> allowed) {
  const bool same = out.data() == allowed.data() && out.size() == allowed.size();
  if (overlap(in, out) && !same) [[unlikely]] {
    running.refuse("the output overlaps the input");
  }
}

HFCOMM_INLINE void require_sum(checked_call& running, std::span<const std::size_t> counts, std::size_t length,
                               const char* what) {
  if (counts.size() != static_cast<std::size_t>(running.size())) {
    running.refuse(concat({what, " has ", counts.size(), " counts for ", running.size(), " ranks"}));
  }
  std::size_t sum = 0;
  for (const std::size_t count : counts) {
    if (count > PTRDIFF_MAX || __builtin_add_overflow(sum, count, &sum)) {
      running.refuse(concat({what, " has counts that are negative, or whose sum no number can hold"}));
    }
  }
  if (length != sum) {
    running.refuse(concat({what, " has ", length, " elements, its counts add up to ", sum}));
  }
}

HFCOMM_INLINE void require_own(checked_call& running, std::size_t sent, std::size_t received) {
  if (sent != received) {
    running.refuse(concat(
        {"the part for itself has ", sent, " elements where it is sent and ", received, " where it is received"}));
  }
}

/// Returns the part of rank `rank`, of parts of `count` elements each.
HFCOMM_INLINE std::span<const std::byte> part_of_rank(const const_elements& whole, std::size_t count, int rank) {
  return whole.bytes().subspan(static_cast<std::size_t>(rank) * count * whole.width, count * whole.width);
}
/// Returns the part of rank `rank`, of parts of `counts[r]` elements.
HFCOMM_INLINE std::span<const std::byte> part_of_rank(const const_elements& whole, std::span<const std::size_t> counts,
                                                      int rank) {
  const auto begin = std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0});
  return whole.bytes().subspan(begin * whole.width, counts[static_cast<std::size_t>(rank)] * whole.width);
}

/// Requires that `part`, "the input" or "the output", has this rank's count of elements.
HFCOMM_INLINE void require_count_of_rank(checked_call& running, std::span<const std::size_t> counts, std::size_t length,
                                         const char* part) {
  const std::size_t count = counts[static_cast<std::size_t>(running.rank())];
  if (length != count) {
    running.refuse(concat({part, " has ", length, " elements, the count of rank ", running.rank(), " is ", count}));
  }
}

/// Requires that `whole` has a part as long as `part` for each rank. `verb` says in the error text what the ranks do
/// with one.
HFCOMM_INLINE void require_equal_parts(checked_call& running, std::size_t whole, std::size_t part, const char* what,
                                       const char* verb) {
  const auto ranks = static_cast<std::size_t>(running.size());
  if (whole / ranks != part || whole % ranks != 0) {  // the product could wrap around
    running.refuse(
        concat({what, " has ", whole, " elements, but ", running.size(), " ranks ", verb, ' ', part, " each"}));
  }
}

/// Requires that `out`, "the output" or "the root's output", is as long as the input.
HFCOMM_INLINE void require_equal_length(checked_call& running, std::size_t in, std::size_t out, const char* what) {
  if (out != in) {
    running.refuse(concat({what, " has ", out, " elements, the input ", in}));
  }
}

HFCOMM_INLINE void check_all_gather(checked_call& running, const const_elements& in, const const_elements& out) {
  require_memory(running, in);
  require_memory(running, out);
  require_equal_parts(running, out.count, in.count, "the output", "contribute");
  require_apart(running, out.bytes(), in.bytes(), part_of_rank(out, in.count, running.rank()));
}

HFCOMM_INLINE void check_all_gather(checked_call& running, const const_elements& in, const const_elements& out,
                                    std::span<const std::size_t> counts) {
  require_memory(running, in);
  require_memory(running, out);
  require_sum(running, counts, out.count, "the output");
  require_count_of_rank(running, counts, in.count, "the input");
  require_apart(running, out.bytes(), in.bytes(), part_of_rank(out, counts, running.rank()));
}

HFCOMM_INLINE void check_elementwise(checked_call& running, const const_elements& in, const const_elements& out) {
  require_memory(running, in);
  require_memory(running, out);
  require_apart(running, in.bytes(), out.bytes(), in.bytes());
  require_equal_length(running, in.count, out.count, "the output");
}

HFCOMM_INLINE void check_all_reduce(checked_call& running, const const_elements& in, const const_elements& out) {
  require_valid(running);
  check_elementwise(running, in, out);
}

HFCOMM_INLINE void check_all_to_all(checked_call& running, const const_elements& in, const const_elements& out) {
  require_memory(running, in);
  require_memory(running, out);
  if (in.count % static_cast<std::size_t>(running.size()) != 0) {
    running.refuse(concat({"the input's ", in.count, " elements cannot be divided by ", running.size(), " ranks"}));
  }
  require_equal_length(running, in.count, out.count, "the output");
  require_apart(running, in.bytes(), out.bytes());
}

HFCOMM_INLINE void check_all_to_all(checked_call& running, const const_elements& in,
                                    std::span<const std::size_t> in_counts, const const_elements& out,
                                    std::span<const std::size_t> out_counts) {
  require_memory(running, in);
  require_memory(running, out);
  require_sum(running, in_counts, in.count, "the input");
  require_sum(running, out_counts, out.count, "the output");
  const auto rank = static_cast<std::size_t>(running.rank());
  require_own(running, in_counts[rank], out_counts[rank]);
  require_apart(running, in.bytes(), out.bytes());
}

HFCOMM_INLINE void check_all_to_all(checked_call& running, const const_elements& in,
                                    std::span<const std::size_t> in_counts) {
  require_memory(running, in);
  require_sum(running, in_counts, in.count, "the input");
}

HFCOMM_INLINE void check_broadcast(checked_call& running, const const_elements& data) {
  running.require_root();
  require_memory(running, data);
}

HFCOMM_INLINE void check_contribution(checked_call& running, const const_elements& in) {
  check_root_if_any(running);
  require_memory(running, in);
}

HFCOMM_INLINE void check_gather(checked_call& running, const const_elements& in, const const_elements& out) {
  running.require_root();
  require_memory(running, in);
  if (running.rank() == running.call().root) {
    require_equal_parts(running, out.count, in.count, "the root's output", "contribute");
    require_memory(running, out);
    require_apart(running, out.bytes(), in.bytes(), part_of_rank(out, in.count, running.rank()));
  }
}

HFCOMM_INLINE void check_gather(checked_call& running, const const_elements& in, const const_elements& out,
                                std::span<const std::size_t> counts) {
  running.require_root();
  require_memory(running, in);
  if (running.rank() == running.call().root) {
    require_memory(running, out);
    require_sum(running, counts, out.count, "the root's output");
    require_own(running, in.count, counts[static_cast<std::size_t>(running.rank())]);
    require_apart(running, out.bytes(), in.bytes(), part_of_rank(out, counts, running.rank()));
  }
}

HFCOMM_INLINE void check_reduce(checked_call& running, const const_elements& in, const const_elements& out) {
  running.require_root();
  require_valid(running);
  require_memory(running, in);
  if (running.rank() == running.call().root) {
    require_memory(running, out);
    require_apart(running, in.bytes(), out.bytes(), in.bytes());
    require_equal_length(running, in.count, out.count, "the root's output");
  }
}

HFCOMM_INLINE void check_reduce_scatter(checked_call& running, const const_elements& in, const const_elements& out) {
  require_valid(running);
  require_memory(running, in);
  require_memory(running, out);
  require_equal_parts(running, in.count, out.count, "the input", "get");
  require_apart(running, in.bytes(), out.bytes(), part_of_rank(in, out.count, running.rank()));
}

HFCOMM_INLINE void check_reduce_scatter(checked_call& running, const const_elements& in, const const_elements& out,
                                        std::span<const std::size_t> counts) {
  require_valid(running);
  require_memory(running, in);
  require_memory(running, out);
  require_sum(running, counts, in.count, "the input");
  require_count_of_rank(running, counts, out.count, "the output");
  require_apart(running, in.bytes(), out.bytes(), part_of_rank(in, counts, running.rank()));
}

HFCOMM_INLINE void check_scatter(checked_call& running, const const_elements& in, const const_elements& out) {
  running.require_root();
  require_memory(running, out);
  if (running.rank() == running.call().root) {
    require_memory(running, in);
    require_equal_parts(running, in.count, out.count, "the root's input", "get");
    require_apart(running, in.bytes(), out.bytes(), part_of_rank(in, out.count, running.rank()));
  }
}

HFCOMM_INLINE void check_scatter(checked_call& running, const const_elements& in, const const_elements& out,
                                 std::span<const std::size_t> counts) {
  running.require_root();
  require_memory(running, out);
  if (running.rank() == running.call().root) {
    require_memory(running, in);
    require_sum(running, counts, in.count, "the root's input");
    require_own(running, counts[static_cast<std::size_t>(running.rank())], out.count);
    require_apart(running, in.bytes(), out.bytes(), part_of_rank(in, counts, running.rank()));
  }
}

HFCOMM_INLINE void check_all_to_all_objects(checked_call& running, std::size_t length) {
  if (length != static_cast<std::size_t>(running.size())) {
    running.refuse(concat({"the list has ", length, " objects for ", running.size(), " ranks"}));
  }
}

HFCOMM_INLINE void check_scatter_objects(checked_call& running, std::size_t length) {
  running.require_root();
  const int root = running.call().root;
  const bool is_root = running.rank() == root;
  if (is_root && length != static_cast<std::size_t>(running.size())) {
    running.refuse(concat({"the root's list has ", length, " objects for ", running.size(), " ranks"}));
  }
  if (!is_root && length != 0) {
    running.refuse(concat({"a list of ", length, " objects on a rank that is not the root, ", root}));
  }
}

}  // namespace hfcomm::detail
