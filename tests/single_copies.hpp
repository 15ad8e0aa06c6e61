// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include <sys/uio.h>
#include <unistd.h>

#include <hfcomm/engine/shared_memory/shared_memory.hpp>
#include <hfcomm/group/detail/group_state.hpp>
#include <hfcomm/group/process_group.hpp>

/// Returns how many operations of the group have read the others' memory by the kernel.
inline std::uint64_t single_copies(const hfcomm::process_group& group) {
  const auto* engine =
      dynamic_cast<const hfcomm::engines::shared_memory*>(&hfcomm::detail::group_access::engine(group));
  return engine == nullptr ? 0 : engine->single_copies();
}

/// The memory of a group whose ranks share a machine.
inline const hfcomm::engines::group_memory& memory_of(const hfcomm::process_group& group) {
  return dynamic_cast<const hfcomm::engines::shared_memory&>(hfcomm::detail::group_access::engine(group))
      .memory_of_group();
}

/// Makes a rank's memory look like another process' from now on, so that it cannot be read. Before the rank's first
/// message, or by the only thread that reads there.
inline void hide_memory(const hfcomm::process_group& group, int rank) { memory_of(group).block(rank).probe.word += 1; }

/// Whether this system allows process_vm_readv, at least on the process's own memory.
inline bool can_read_memory() {
  const int from = 7;
  int to = 0;
  iovec local{&to, sizeof(to)};
  iovec remote{const_cast<int*>(&from), sizeof(from)};
  return ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) == sizeof(to) && to == from;
}
