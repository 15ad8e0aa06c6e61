// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace hfcomm::engines {

/// The machines of a group's ranks, numbered in the order of their first ranks.
class group_placement {
 public:
  /// `machine_of` has the machine of each rank, in any numbering.
  [[gnu::cold]] explicit group_placement(const std::vector<int>& machine_of) {
    std::vector<int> names;
    for (int rank = 0; rank < static_cast<int>(machine_of.size()); ++rank) {
      const int name = machine_of[static_cast<std::size_t>(rank)];
      const auto found = std::find(names.begin(), names.end(), name);
      const auto machine = static_cast<std::size_t>(found - names.begin());
      if (found == names.end()) {
        names.push_back(name);
        ranks_.emplace_back();
      } else if (ranks_[machine].back() != rank - 1) {
        is_contiguous_ = false;
      }
      machine_of_.push_back(static_cast<int>(machine));
      ranks_[machine].push_back(rank);
    }
  }

  [[nodiscard]] int size() const noexcept { return static_cast<int>(machine_of_.size()); }
  [[nodiscard]] int machines() const noexcept { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] int machine_of(int rank) const { return machine_of_[static_cast<std::size_t>(rank)]; }
  /// Returns the ranks of a machine, in order.
  [[nodiscard]] const std::vector<int>& ranks_of(int machine) const {
    return ranks_[static_cast<std::size_t>(machine)];
  }
  /// Returns whether the ranks of each machine follow one another.
  [[nodiscard]] bool is_contiguous() const noexcept { return is_contiguous_; }
  /// Returns the number of ranks of the machine that has most of them.
  [[nodiscard]] int most_on_a_machine() const {
    std::size_t most = 0;
    for (const auto& ranks : ranks_) {
      most = std::max(most, ranks.size());
    }
    return static_cast<int>(most);
  }

 private:
  std::vector<int> machine_of_;          // by rank
  std::vector<std::vector<int>> ranks_;  // by machine
  bool is_contiguous_ = true;
};

}  // namespace hfcomm::engines
