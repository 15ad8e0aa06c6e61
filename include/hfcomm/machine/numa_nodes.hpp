// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hfcomm::rendezvous {

/// The NUMA nodes of a machine: groups of cores with memory of their own. Nodes without cores do not count.
class numa_nodes {
 public:
  static constexpr int unknown = -1;

  /// Reads the nodes from a folder with a file `node0/cpulist` for each of them. A folder that is not there has none.
  [[gnu::cold]] explicit numa_nodes(const std::string& folder = "/sys/devices/system/node");

  /// Returns the nodes of this machine, as they were when a process first asked.
  static const numa_nodes& of_this_machine();

  [[nodiscard]] int count() const noexcept { return count_; }
  /// Returns the node that has all of these cores; unknown where several have some, and where one has none of them.
  [[nodiscard]] int node_of(std::span<const int> cores) const noexcept;

 private:
  std::vector<int> node_of_core_;
  int count_ = 0;
};

/// Returns the numbers in a list as Linux writes it: "0-2,7" has 0, 1, 2 and 7. Ends at the first character that does
/// not belong there.
std::vector<int> parse_number_list(std::string_view text);

/// Returns the cores on which the calling thread may run; none where the system does not tell.
std::vector<int> allowed_core_numbers();

/// Returns whether it matters on which node a rank's memory is: whether this machine, or HFCOMM_NUMA_NODES where it is
/// set, has several. Throws engine_error where the variable is no list of numbers.
[[gnu::cold]] bool machine_has_several_nodes();

/// The place of a rank and of its memory.
struct numa_place {
  /// The rank's node: the one that has all cores on which it may run; or what HFCOMM_NUMA_NODES says. Unknown where
  /// several have some, and where the machine has one node.
  int node = numa_nodes::unknown;
  /// The node on which the rank's memory should be. Unknown where the system chooses: on machines with one node, and
  /// where the rank may run on several.
  int memory_node = numa_nodes::unknown;
};

/// Returns the place of the calling thread, which is rank `local_rank` on this machine.
///
/// `HFCOMM_NUMA_NODES` pretends nodes, for tests and models: "0,0,1,1" puts ranks 0 and 1 on node 0. A rank's memory
/// then still goes to the node where it is. Where all numbers are equal, the machine counts as one with a single node.
/// -1 stands for a rank that may run on several nodes. Throws engine_error where the variable is no list of numbers,
/// or has none for this rank.
[[gnu::cold]] numa_place place_of_rank(int local_rank);

/// Asks the system to keep the whole pages inside `memory` on `node`, and to move those that are elsewhere. A page that
/// another process has mapped moves only where this one has CAP_SYS_NICE. Returns false where the system refuses, as in
/// some containers; then nothing has changed.
bool prefer_node(std::span<std::byte> memory, int node) noexcept;

}  // namespace hfcomm::rendezvous
