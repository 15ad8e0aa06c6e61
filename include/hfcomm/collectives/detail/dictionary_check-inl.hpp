// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <hfcomm/call/argument_checks.hpp>
#include <hfcomm/collectives/detail/dictionary_check.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/std_algorithm.hpp>

namespace hfcomm::detail {

/// The messages of one reduction.
class message_check {
 public:
  message_check(running_call& running, std::span<const std::vector<std::byte>> messages, path_reader take_path)
      : running_(running), messages_(messages), take_path_(take_path) {}

  void require_equal_structures() const {
    const auto first = structure(0);
    for (std::size_t rank = 1; rank < messages_.size(); ++rank) {
      const auto theirs = structure(rank);
      if (!std::equal(theirs.begin(), theirs.end(), first.begin(), first.end())) {
        throw_difference(rank);
      }
    }
  }

  void require_equal_sizes(std::size_t size) const {
    for (std::size_t rank = 0; rank < messages_.size(); ++rank) {
      if (messages_[rank].size() != size) {
        throw_malformed(rank, "its values are cut off");
      }
    }
  }

  void require_defined(const dictionary_layout& own) const {
    const reduce_kind op = running_.call().op;
    for (std::size_t index = 1; index < leaf_kinds; ++index) {
      const auto kind = static_cast<leaf_kind>(index);
      if (own.has(kind) && !valid(op, kind)) {
        throw_error<usage_error>(
            running_.context(),
            {names_of(kind), ": ",
             kind == leaf_kind::weighted_mean ? "weighted means are added up; there is no other reduction of them"
                                              : undefined_reduction(op, to_string(kind))});
      }
    }
  }

 private:
  [[noreturn, gnu::cold]] void throw_malformed(std::size_t rank, std::string_view problem) const {
    throw_error<decode_error>(running_.context(), {"the dictionary from rank ", rank, ": ", problem});
  }

  /// Returns `read()`, which reads the message from `rank`.
  template <class Read>
  [[nodiscard]] auto decoded(std::size_t rank, Read read) const {
    try {
      return read();
    } catch (const decode_error& problem) {
      throw_malformed(rank, problem.detail());
    }
  }

  [[nodiscard]] std::span<const std::byte> structure(std::size_t rank) const {
    return decoded(rank, [&] { return structure_of(messages_[rank]); });
  }

  /// Throws mismatch_error. `other` is a rank whose structure is not that of rank 0.
  [[noreturn, gnu::cold]] void throw_difference(std::size_t other) const {
    std::vector<dictionary_entry> entries;
    for (std::size_t rank = 0; rank < messages_.size(); ++rank) {
      decoded(rank, [&] { read_entries(structure_of(messages_[rank]), take_path_, static_cast<int>(rank), entries); });
    }
    throw_error<mismatch_error>(running_.context(),
                                {"the ranks reduce different keys: ", describe_difference(entries, running_.size()),
                                 "; rank 0 called ", running_.engine().matching_call(0), ", rank ", other, " called ",
                                 running_.engine().matching_call(static_cast<int>(other))},
                                0, static_cast<int>(other));
  }

  [[nodiscard, gnu::cold]] std::string names_of(leaf_kind kind) const {
    std::string names;
    std::vector<dictionary_entry> entries;
    read_entries(structure(0), take_path_, 0, entries);
    for (const dictionary_entry& entry : entries) {
      if (entry.kind == kind) {
        append(names, {names.empty() ? "" : ", ", entry.name});
      }
    }
    return names;
  }

  running_call& running_;
  std::span<const std::vector<std::byte>> messages_;
  path_reader take_path_;
};

HFCOMM_INLINE void check_messages(running_call& running, std::span<const std::vector<std::byte>> messages,
                                  const dictionary_layout& own, path_reader take_path) {
  const message_check check(running, messages, take_path);
  check.require_equal_structures();
  check.require_equal_sizes(own.message_bytes());
  check.require_defined(own);
}

}  // namespace hfcomm::detail
