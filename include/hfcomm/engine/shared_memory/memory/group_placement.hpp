// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <cstddef>
#include <span>
#include <vector>

#include <hfcomm/core/std_algorithm.hpp>

namespace hfcomm::engines {

/// The machines of a group's ranks, numbered in the order of their first ranks.
class group_placement {
 public:
  /// Makes the placement of no ranks.
  group_placement() : group_placement(std::vector<int>()) {}
  /// `machine_of` has the machine of each rank, in any numbering.
  [[gnu::cold]] explicit group_placement(const std::vector<int>& machine_of) {
    std::vector<int> names;
    for (const int name : machine_of) {
      const auto found = std::find(names.begin(), names.end(), name);
      machine_of_.push_back(static_cast<int>(found - names.begin()));
      if (found == names.end()) {
        names.push_back(name);
      }
    }
    begins_.push_back(0);
    for (int machine = 0; machine < static_cast<int>(names.size()); ++machine) {
      for (int rank = 0; rank < size(); ++rank) {
        if (machine_of_[static_cast<std::size_t>(rank)] == machine) {
          ranks_.push_back(rank);
        }
      }
      begins_.push_back(static_cast<int>(ranks_.size()));
    }
    const int each = begins_.size() > 1 ? begins_[1] : 1;
    has_subtrees_ = std::has_single_bit(static_cast<unsigned>(each));
    for (int rank = 0; rank < size(); ++rank) {
      has_subtrees_ = has_subtrees_ && machine_of_[static_cast<std::size_t>(rank)] == rank / each;
    }
  }

  [[nodiscard]] int size() const noexcept { return static_cast<int>(machine_of_.size()); }
  [[nodiscard]] int machines() const noexcept { return static_cast<int>(begins_.size()) - 1; }
  [[nodiscard]] int machine_of(int rank) const { return machine_of_[static_cast<std::size_t>(rank)]; }
  /// Returns the ranks of a machine, in order.
  [[nodiscard]] std::span<const int> ranks_of(int machine) const {
    const int* const begin = &begins_[static_cast<std::size_t>(machine)];
    return {ranks_.data() + begin[0], ranks_.data() + begin[1]};
  }
  /// Returns whether each machine's ranks are a whole subtree of a reduction's order (see reduction_kernel), and the
  /// machines are the leaves of the tree above: they have equally many ranks, a power of two, in the order of the
  /// ranks, but the last may have fewer.
  [[nodiscard]] bool has_subtrees() const noexcept { return has_subtrees_; }
  /// Returns the number of ranks of the machine that has most of them.
  [[nodiscard]] int most_on_a_machine() const {
    std::size_t most = 0;
    for (int machine = 0; machine < machines(); ++machine) {
      most = std::max(most, ranks_of(machine).size());
    }
    return static_cast<int>(most);
  }

 private:
  std::vector<int> machine_of_;  // by rank
  std::vector<int> ranks_;       // by machine
  std::vector<int> begins_;      // of each machine's ranks, and the end of the last one's
  bool has_subtrees_ = true;
};

}  // namespace hfcomm::engines
