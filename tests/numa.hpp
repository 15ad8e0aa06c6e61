// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <hfcomm/engine/shared_memory/shared_memory.hpp>
#include <hfcomm/group/detail/group_state.hpp>
#include <hfcomm/group/process_group.hpp>

/// Helpers of the tests with pretended NUMA nodes.
namespace numa {

/// Pretends the nodes of HFCOMM_NUMA_NODES for all groups that are made while this exists.
class pretended_nodes {
 public:
  explicit pretended_nodes(const std::string& list) { ::setenv("HFCOMM_NUMA_NODES", list.c_str(), 1); }
  explicit pretended_nodes(const std::vector<int>& nodes) : pretended_nodes(text_of(nodes)) {}
  pretended_nodes(const pretended_nodes&) = delete;
  pretended_nodes& operator=(const pretended_nodes&) = delete;
  ~pretended_nodes() { ::unsetenv("HFCOMM_NUMA_NODES"); }

  static std::string text_of(const std::vector<int>& nodes) {
    std::string text;
    for (const int node : nodes) {
      text += (text.empty() ? "" : ",") + std::to_string(node);
    }
    return text;
  }
};

inline hfcomm::engines::shared_memory& engine_of(const hfcomm::process_group& group) {
  auto* engine = dynamic_cast<hfcomm::engines::shared_memory*>(&hfcomm::detail::group_access::engine(group));
  if (engine == nullptr) {
    throw std::logic_error("the group shares no memory");
  }
  return *engine;
}

/// Returns the number of reductions of the group that went along the chain of nodes.
inline std::uint64_t node_chains(const hfcomm::process_group& group) { return engine_of(group).node_chain().count(); }

/// Lets a group reduce node by node whatever has so many bytes, however few ranks a node has. All ranks call it.
inline void chain_from(std::size_t bytes, const hfcomm::process_group& group) {
  engine_of(group).node_chain().set_limits({.ranks = 1, .bytes = bytes, .is_tuned = false});
}

/// Returns the node that the system prefers for a page, as `prefer_node` has set it; -1 where none is set.
inline int preferred_node_of(const void* address) {
  constexpr int preferred = 1;        // MPOL_PREFERRED
  constexpr unsigned of_address = 2;  // MPOL_F_ADDR
  int mode = 0;
  std::array<unsigned long, 16> mask{};
  if (::syscall(SYS_get_mempolicy, &mode, mask.data(), mask.size() * sizeof(mask[0]) * 8, address, of_address) != 0) {
    throw std::runtime_error("get_mempolicy failed");
  }
  return mode == preferred && mask[0] != 0 ? std::countr_zero(mask[0]) : -1;
}

/// Returns the node where a page lies that this process has mapped; a negative number where the system does not tell.
inline int node_of_page(const void* address) {
  int node = -1;
  return ::syscall(SYS_move_pages, 0, 1UL, &address, nullptr, &node, 0) == 0 ? node : -1;
}

/// Returns whether the system lets this process place memory. Some containers do not.
inline bool may_place_memory() {
  void* const page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  unsigned long mask = 1;
  const bool may = ::syscall(SYS_mbind, page, 4096, 1, &mask, 65, 0) == 0;
  ::munmap(page, 4096);
  return may;
}

}  // namespace numa
