// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/detail/numbers.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/machine/numa_nodes.hpp>
#include <hfcomm/machine/text_file.hpp>

namespace hfcomm::detail {

/// Returns the nodes of HFCOMM_NUMA_NODES by rank of this machine; nullopt where it is not set.
[[gnu::cold]] inline std::optional<std::vector<int>> pretended_numa_nodes() {
  const char* const value = std::getenv("HFCOMM_NUMA_NODES");
  if (value == nullptr || *value == '\0') {
    return std::nullopt;
  }
  std::vector<int> nodes;
  std::string_view text = value;
  do {
    const auto node = take_number(text);
    if (!node || *node < rendezvous::numa_nodes::unknown) {
      detail::throw_error<engine_error>(
          {"HFCOMM_NUMA_NODES is \"", value, "\", which is no list of a node for each rank of this machine: 0,0,1,1"});
    }
    nodes.push_back(*node);
  } while (take_character(text, ','));
  if (!text.empty()) {
    detail::throw_error<engine_error>(
        {"HFCOMM_NUMA_NODES has \"", text, "\" behind its list of nodes; wanted: 0,0,1,1"});
  }
  return nodes;
}

}  // namespace hfcomm::detail

namespace hfcomm::rendezvous {

HFCOMM_INLINE std::vector<int> parse_number_list(std::string_view text) {
  constexpr int most = 1 << 20;  // more than Linux can count
  std::vector<int> numbers;
  do {
    const auto first = detail::take_number(text);
    const auto last = first && detail::take_character(text, '-') ? detail::take_number(text) : first;
    if (!first || !last || *first < 0 || *last > most) {
      break;
    }
    for (int number = *first; number <= *last; ++number) {
      numbers.push_back(number);
    }
  } while (detail::take_character(text, ','));
  return numbers;
}

[[gnu::cold]] HFCOMM_INLINE numa_nodes::numa_nodes(const std::string& folder) {
  DIR* const directory = ::opendir(folder.c_str());
  if (directory == nullptr) {
    return;
  }
  while (const dirent* const entry = ::readdir(directory)) {
    std::string_view name = entry->d_name;
    if (!name.starts_with("node")) {
      continue;
    }
    name.remove_prefix(4);
    const auto node = detail::take_number(name);
    if (!node || !name.empty()) {
      continue;
    }
    std::vector<int> cores;
    text_file(detail::concat({folder, '/', entry->d_name, "/cpulist"})).read_lines([&](const std::string& list) {
      cores = parse_number_list(list);
      return false;
    });
    count_ += cores.empty() ? 0 : 1;
    for (const int core : cores) {
      const auto index = static_cast<std::size_t>(core);
      node_of_core_.resize(std::max(node_of_core_.size(), index + 1), unknown);
      node_of_core_[index] = *node;
    }
  }
  ::closedir(directory);
}

HFCOMM_INLINE const numa_nodes& numa_nodes::of_this_machine() {
  static const numa_nodes nodes;
  return nodes;
}

HFCOMM_INLINE int numa_nodes::node_of(std::span<const int> cores) const noexcept {
  int found = unknown;
  for (const int core : cores) {
    const auto index = static_cast<std::size_t>(core);
    const int node = index < node_of_core_.size() ? node_of_core_[index] : unknown;
    if (node == unknown || (found != unknown && node != found)) {
      return unknown;
    }
    found = node;
  }
  return found;
}

HFCOMM_INLINE std::vector<int> allowed_core_numbers() {
  constexpr std::size_t most = 1 << 16;  // sched_getaffinity fails where the machine may have more cores than this
  constexpr std::size_t bits = sizeof(unsigned long) * CHAR_BIT;
  std::vector<unsigned long> mask(most / bits);
  const long bytes = ::syscall(SYS_sched_getaffinity, 0, mask.size() * sizeof(unsigned long), mask.data());
  std::vector<int> cores;
  for (std::size_t core = 0; bytes > 0 && core < static_cast<std::size_t>(bytes) * CHAR_BIT; ++core) {
    if ((mask[core / bits] >> (core % bits) & 1) != 0) {
      cores.push_back(static_cast<int>(core));
    }
  }
  return cores;
}

HFCOMM_INLINE bool machine_has_several_nodes() {
  const auto pretended = detail::pretended_numa_nodes();
  return pretended
             ? std::any_of(pretended->begin(), pretended->end(), [&](int node) { return node != pretended->front(); })
             : numa_nodes::of_this_machine().count() > 1;
}

[[gnu::cold]] HFCOMM_INLINE numa_place place_of_rank(int local_rank) {
  const int node = machine_has_several_nodes() ? numa_nodes::of_this_machine().node_of(allowed_core_numbers())  //
                                               : numa_nodes::unknown;
  const auto pretended = detail::pretended_numa_nodes();
  if (!pretended) {
    return {node, node};
  }
  const auto index = static_cast<std::size_t>(local_rank);
  if (index >= pretended->size()) {
    detail::throw_error<engine_error>(
        {"HFCOMM_NUMA_NODES has ", pretended->size(), " numbers, and none for rank ", local_rank, " of this machine"});
  }
  return {(*pretended)[index], node};
}

HFCOMM_INLINE bool prefer_node(std::span<std::byte> memory, int node) noexcept {
  // <linux/mempolicy.h> is not part of every C library's headers.
  constexpr int preferred = 1;         // MPOL_PREFERRED
  constexpr unsigned move = 2;         // MPOL_MF_MOVE
  constexpr unsigned move_shared = 4;  // MPOL_MF_MOVE_ALL
  constexpr std::size_t bits = sizeof(unsigned long) * CHAR_BIT;
  std::array<unsigned long, 1024 / bits> mask{};
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<std::uintptr_t>(memory.data()) + page - 1) / page * page;
  const auto end = (reinterpret_cast<std::uintptr_t>(memory.data()) + memory.size()) / page * page;
  const auto index = static_cast<std::size_t>(node);
  if (node < 0 || index >= mask.size() * bits) {
    return false;
  }
  mask[index / bits] = 1UL << (index % bits);
  const auto bind = [&](unsigned flags) {
    // The kernel takes the number of bits to be one larger than it is.
    return ::syscall(SYS_mbind, begin, end - begin, preferred, mask.data(), mask.size() * bits + 1, flags) == 0;
  };
  return end <= begin || bind(move_shared) || (errno == EPERM && bind(move));
}

}  // namespace hfcomm::rendezvous
