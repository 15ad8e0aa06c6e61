// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include <hfcomm/engine/shared_memory/shared_memory.hpp>
#include <hfcomm/group/process_group.hpp>

/// How many all-to-alls of the group have been done without slots.
inline std::uint64_t single_copies(const hfcomm::process_group& group) {
  const auto* engine =
      dynamic_cast<const hfcomm::engines::shared_memory*>(&hfcomm::detail::group_access::engine(group));
  return engine == nullptr ? 0 : engine->single_copies();
}
