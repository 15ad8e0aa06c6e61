// SPDX-License-Identifier: MIT
#pragma once

#include <cstdio>
#include <cstdlib>

#include <unistd.h>

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

/// The variable that a session sets to its process's number, for the process's other modules.
inline constexpr const char* session_variable = "HFCOMM_SESSION_OF_PROCESS";

/// Tells the process's other modules that it has a session.
[[gnu::cold]] HFCOMM_INLINE void set_session_variable() noexcept {
  char number[16];
  std::snprintf(number, sizeof(number), "%d", ::getpid());
  ::setenv(session_variable, number, 1);
}

/// A process without a session, as this module sees it, that is not a job of one.
class missing_session {
 public:
  [[gnu::cold]] missing_session() noexcept {
    const char* const process = std::getenv(session_variable);
    const char* const required = std::getenv("HFCOMM_REQUIRE_INIT");
    if (process != nullptr && std::atoi(process) == ::getpid()) {
      is_error_ = true;
      std::snprintf(text_, sizeof(text_), "%s",
                    "another module of this process (the program, or a library) has a session, and this one has a copy "
                    "of hfcomm's state, in which the world is one rank: link the program with -rdynamic, and load the "
                    "library without RTLD_DEEPBIND");
    } else if (const char* const size = variable_of_several_ranks()) {
      is_error_ = required != nullptr && required[0] == '1';
      std::snprintf(text_, sizeof(text_),
                    "%s=%.20s, but this process has no session, so its world is one rank: call hfcomm::init() first, "
                    "and keep what it returns: auto session = hfcomm::init();",
                    size, std::getenv(size));
    }
  }

  /// Whether a call of a group is a usage_error.
  [[nodiscard]] bool is_error() const noexcept { return is_error_; }
  [[nodiscard]] const char* text() const noexcept { return text_; }

 private:
  char text_[320] = "";
  bool is_error_ = false;
};

/// Says once on stderr that a session is missing, if it is. Each process would do the work of rank 0.
[[gnu::cold]] HFCOMM_INLINE void note_missing_session() noexcept {
  [[maybe_unused]] static const bool is_noted = [] {
    if (const missing_session missing; missing.text()[0] != '\0') {
      std::fprintf(stderr, "[hfcomm] %s\n", missing.text());
    }
    return true;
  }();
}

/// The same for a call of a group. Throws usage_error where HFCOMM_REQUIRE_INIT is 1, which hfrun sets, and where
/// another module has the session.
[[gnu::cold]] HFCOMM_INLINE void require_session() {
  if (const missing_session missing; missing.is_error()) {
    throw_error<usage_error>({missing.text()});
  }
  note_missing_session();
}

}  // namespace hfcomm::detail
