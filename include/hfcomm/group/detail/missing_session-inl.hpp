// SPDX-License-Identifier: MIT
#pragma once

#include <cstdio>
#include <cstdlib>
#include <source_location>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/error.hpp>

namespace hfcomm::detail {

/// The variables in which a launcher tells a process its rank and the number of ranks.
struct launcher_names {
  const char* rank;
  const char* size;
};

/// Those of launchers::known.
inline constexpr launcher_names names_of_launchers[] = {{"HFCOMM_RANK", "HFCOMM_WORLD_SIZE"},
                                                        {"RANK", "WORLD_SIZE"},
                                                        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                                        {"FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
                                                        {"PALS_RANKID", "PMI_SIZE"},
                                                        {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},
                                                        {"PMI_RANK", "PMI_SIZE"},
                                                        {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};

/// Returns the variable in which a launcher says that this process is one of several; null where there is none.
[[gnu::cold]] HFCOMM_INLINE const char* variable_of_several_ranks() noexcept {
  for (const launcher_names& one : names_of_launchers) {
    const char* const size = std::getenv(one.size);
    if (std::getenv(one.rank) != nullptr && size != nullptr && std::atoi(size) > 1) {
      return one.size;
    }
  }
  return nullptr;
}

/// The error, after the variable, of a process without a session that a launcher has started as one of several.
inline constexpr const char* session_remedy =
    ", but this process has no session, so its world is one rank: call hfcomm::init() first, and keep what it returns: "
    "auto session = hfcomm::init();";

/// Says once on stderr that a launcher has started several of this process, which has no session. Each would do the
/// work of rank 0.
[[gnu::cold]] HFCOMM_INLINE void note_missing_session() noexcept {
  [[maybe_unused]] static const bool is_noted = [] {
    if (const char* const size = variable_of_several_ranks()) {
      std::fprintf(stderr, "[hfcomm] %s=%s%s\n", size, std::getenv(size), session_remedy);
    }
    return true;
  }();
}

/// The same for a call of a group. Throws usage_error where HFCOMM_REQUIRE_INIT is 1, which hfrun sets.
[[gnu::cold]] HFCOMM_INLINE void require_session() {
  const char* const required = std::getenv("HFCOMM_REQUIRE_INIT");
  if (required == nullptr || required[0] != '1') {
    note_missing_session();
  } else if (const char* const size = variable_of_several_ranks()) {
    throw_error<usage_error>({0, 1, "world", 0, std::source_location::current()},
                             {size, "=", std::getenv(size), session_remedy});
  }
}

}  // namespace hfcomm::detail
