// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

#include <hfcomm/core/error.hpp>
#include <hfcomm/core/function_ref.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/engine/shared_memory/health.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>

namespace hfcomm::engines {

/// The comparison of the cells that ranks have published in the first step of an operation. `context()` returns that of
/// the operation that tells an error, which may be a later one.
class cell_checks {
 public:
  /// `health` outlives this.
  explicit cell_checks(const shared_memory_health& health) : health_(health), memory_(health.memory()) {}

  /// Compares the cells of all ranks. All ranks see the same cells, so all come to the same verdict. Throws peer_error
  /// for a failure and mismatch_error.
  void check_all(function_ref<error_context()> context, std::uint64_t step) const {
    const std::uint64_t reference = signature(0, step);
    for (int rank = 0; rank < health_.size(); ++rank) {
      check_failure(context, rank, step);
    }
    for (int rank = 1; rank < health_.size(); ++rank) {
      if (signature(rank, step) != reference) {
        throw_mismatch(context, 0, rank, step);
      }
    }
  }

  /// Compares the cells of this rank and `source` alone.
  void check_source(function_ref<error_context()> context, int source, std::uint64_t step) const {
    const int own = health_.rank();
    check_failure(context, source, step);
    if (signature(source, step) != signature(own, step)) {
      throw_mismatch(context, std::min(source, own), std::max(source, own), step);
    }
  }

 private:
  [[nodiscard]] const layout::flag_cell& cell(int rank, std::uint64_t step) const { return memory_.cell(rank, step); }
  [[nodiscard]] std::uint64_t signature(int rank, std::uint64_t step) const {
    return cell(rank, step).signature.load(std::memory_order_relaxed);
  }

  void check_failure(function_ref<error_context()> context, int rank, std::uint64_t step) const {
    const layout::flag_cell& theirs = cell(rank, step);
    if (rank != health_.rank() && announces_failure(theirs)) {
      std::string text = memory_.failure(rank, step).read().value_or(std::string());
      if (text.empty()) {
        text = health_.failure_text_of(rank);
      }
      detail::throw_error<peer_error>(
          context(), {health_.who(rank), " failed in ", describe_call(theirs, memory_.block(rank).sites), ": ", text},
          rank, false);
    }
  }

  /// Returns a rank's call in words, without its place and without what each rank may have of its own.
  [[nodiscard, gnu::cold]] std::string what_must_agree(int rank, std::uint64_t step) const {
    const layout::flag_cell& theirs = cell(rank, step);
    const std::uint64_t what = theirs.what.load();
    const bool equally_long = static_cast<payload>(what & 0xff) == payload::buffer;
    const std::string text = describe_call(memory_.block(rank).sites[theirs.site.load() % layout::site_count], what,
                                           equally_long ? theirs.bytes.load() : 0, theirs.tag.load());
    return text.substr(0, text.rfind(" at "));
  }

  template <class Context>
  [[noreturn, gnu::cold]] void throw_mismatch(const Context& context, int first, int second, std::uint64_t step) const {
    const std::uint64_t number = cell(first, step).sequence.load();
    const std::string one = describe_call(cell(first, step), memory_.block(first).sites);
    const std::string other = describe_call(cell(second, step), memory_.block(second).sites);
    // Not everything that must agree is in the texts, and not everything in them must.
    const bool alike = what_must_agree(first, step) == what_must_agree(second, step);
    detail::throw_error<mismatch_error>(
        context(),
        {"ranks ", first, " and ", second, " disagree about operation #", number, " of their group: rank ", first,
         " called ", one, ", rank ", second, " called ", other,
         alike ? "; what differs are their lists of counts or ranks" : "",
         object_against_elements(cell(first, step).what.load(), cell(second, step).what.load())},
        first, second);
  }

  const shared_memory_health& health_;
  const group_memory& memory_;
};

}  // namespace hfcomm::engines
