// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <sys/auxv.h>
#include <unistd.h>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/error.hpp>

namespace hfcomm::detail {

/// The variables in which a launcher tells a process its rank and the number of ranks.
struct launcher_names {
  const char* rank;
  const char* size;
};

/// The variables of launchers::known, in its order.
inline constexpr launcher_names names_of_launchers[] = {{"HFCOMM_RANK", "HFCOMM_WORLD_SIZE"},
                                                        {"RANK", "WORLD_SIZE"},
                                                        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                                        {"FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
                                                        {"PALS_RANKID", "PMI_SIZE"},
                                                        {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},
                                                        {"PMI_RANK", "PMI_SIZE"},
                                                        {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};

/// Returns the variable in which the first launcher that has set both says that this process is one of several; null
/// where it says that it is alone, and where there is no launcher.
[[gnu::cold]] HFCOMM_INLINE const char* variable_of_several_ranks() noexcept {
  for (const launcher_names& one : names_of_launchers) {
    const char* const size = std::getenv(one.size);
    if (std::getenv(one.rank) != nullptr && size != nullptr) {
      return std::atoi(size) > 1 ? one.size : nullptr;
    }
  }
  return nullptr;
}

/// The variable by which a session tells the process's other modules of itself.
inline constexpr const char* session_variable = "HFCOMM_SESSION_OF_PROCESS";

/// The value of that variable in this process. It is another one in a child, and after an exec.
class session_mark {
 public:
  [[gnu::cold]] session_mark() noexcept {
    std::uint64_t random = 0;
    // The kernel gives addresses as numbers.
    const auto* const bytes = reinterpret_cast<const void*>(::getauxval(AT_RANDOM));  // NOLINT(*int-to-ptr)
    if (bytes != nullptr) {
      std::memcpy(&random, bytes, sizeof(random));
    }
    std::snprintf(text_, sizeof(text_), "%10d-%016llx", ::getpid(), static_cast<unsigned long long>(random));
  }
  [[nodiscard]] const char* text() const noexcept { return text_; }

 private:
  char text_[40];
};

/// Tells the process's other modules whether it has a session. Other threads may read the environment meanwhile: the
/// variable is added once, and changes in its place.
[[gnu::cold]] HFCOMM_INLINE void mark_session(bool is_there) noexcept {
  static char variable[80];
  const session_mark mark;
  const bool is_new = variable[0] == '\0';
  std::snprintf(variable, sizeof(variable), "%s=%s", session_variable, mark.text());
  if (!is_there) {
    variable[std::strlen(session_variable) + 1] = '-';  // in the place of a blank
  }
  if (is_new) {
    ::putenv(variable);
  }
}

/// A process without a session, as this module sees it, that is not a job of one.
class missing_session {
 public:
  [[gnu::cold]] missing_session() noexcept {
    static const char* const variable = variable_of_several_ranks();
    static const char* const required = std::getenv("HFCOMM_REQUIRE_INIT");
    const char* const mark = std::getenv(session_variable);
    if (mark != nullptr && std::strcmp(mark, session_mark().text()) == 0) {
      is_error_ = true;
      std::snprintf(text_, sizeof(text_), "%s",
                    "another module of this process (the program, or a library) has a session, and this one has a copy "
                    "of hfcomm's state, in which the world is one rank: link the program with -rdynamic, and load the "
                    "library without RTLD_DEEPBIND");
    } else if (variable != nullptr) {
      is_error_ = required != nullptr && required[0] == '1';
      const char* const size = std::getenv(variable);
      std::snprintf(text_, sizeof(text_),
                    "%s=%.20s, but this process has no session, so its world is one rank: call hfcomm::init() first, "
                    "and keep what it returns: auto session = hfcomm::init();",
                    variable, size != nullptr ? size : "");
    }
  }

  /// Returns whether a call of a group is a usage_error.
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

/// Checks a call of a group that has no session. Throws usage_error where HFCOMM_REQUIRE_INIT is 1, which hfrun sets,
/// and where another module has the session; else see note_missing_session.
[[gnu::cold]] HFCOMM_INLINE void require_session() {
  if (const missing_session missing; missing.is_error()) {
    throw_error<usage_error>({missing.text()});
  }
  note_missing_session();
}

}  // namespace hfcomm::detail
