// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <optional>
#include <source_location>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <unistd.h>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/group/environment.hpp>
#include <hfcomm/machine/process_state.hpp>

namespace hfcomm {

HFCOMM_INLINE std::optional<std::string> read_process_environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

namespace detail {

/// The variables that one kind of launcher sets.
struct launcher_variables {
  const char* source;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
  std::vector<const char*> job;     ///< Variables that name the job; needed from two processes on.
  std::vector<const char*> refine;  ///< Variables that also distinguish jobs; never needed.
  /// True where `local_size` is a list indexed by SLURM_NODEID: 4(x2),3 stands for 4, 4 and 3.
  bool sizes_of_all_machines = false;
};

/// A parser of one launcher's variables, with checks.
class launcher_parser {
 public:
  launcher_parser(launcher_variables variables, environment_reader read, std::source_location where)
      : variables_(std::move(variables)), read_(read), where_(where) {}

  /// Returns whether the rank or the size is set. A MASTER_ADDR or LOCAL_RANK alone is often left over.
  [[nodiscard]] bool present() const { return read_(variables_.rank) || read_(variables_.size); }

  [[nodiscard]] launch_environment parse() const {
    const auto given_size = number(variables_.size, 1);
    require(!given_size || *given_size > 1);
    launch_environment result;
    result.source = variables_.source;
    result.world_size = *given_size;
    result.rank = *number(variables_.rank, 0);
    require_below(variables_.rank, result.rank, variables_.size, result.world_size);

    const auto local_size = variables_.sizes_of_all_machines ? size_in_list() : number(variables_.local_size, 1);
    const auto local_rank = number(variables_.local_rank, 0);
    result.local_size = local_size.value_or(result.world_size);
    if (result.local_size > result.world_size) {
      fail(shown(variables_.local_size) + " is more than " + shown(variables_.size));
    }
    result.local_rank = local_rank.value_or(result.rank);
    if (!local_rank && result.local_size < result.world_size) {
      fail(shown(variables_.local_size) + " is less than " + shown(variables_.size) + ", so " + variables_.local_rank +
           " must be set, too");
    }
    require_below(variables_.local_rank, result.local_rank, local_size ? variables_.local_size : variables_.size,
                  result.local_size);
    return result;
  }

  /// Returns a variable that was found. Throws usage_error where it is empty.
  [[nodiscard]] std::string text(const char* name) const {
    std::string value = read_(name).value_or("");
    if (value.empty()) {
      fail(shown(name) + " is empty");
    }
    return value;
  }

  /// Returns a whole number from `least` to `most`; nullopt where the variable is not set.
  [[nodiscard]] std::optional<int> number(const char* name, int least,
                                          int most = std::numeric_limits<int>::max()) const {
    const auto value = read_(name);
    if (!value) {
      return std::nullopt;
    }
    int result = 0;
    const char* const end = value->data() + value->size();
    const auto [stop, problem] = std::from_chars(value->data(), end, result);
    if (problem != std::errc() || stop != end || result < least || result > most) {
      fail(shown(name) + " is no whole number from " + std::to_string(least) + " to " + std::to_string(most));
    }
    return result;
  }

 private:
  /// Returns this machine's number in a list such as 4(x2),3.
  [[nodiscard]] std::optional<int> size_in_list() const {
    const auto list = read_(variables_.local_size);
    if (!list) {
      return std::nullopt;
    }
    const auto wrong = [this] { fail(shown(variables_.local_size) + " is no list of numbers such as 4(x2),3"); };
    int machine = number("SLURM_NODEID", 0).value_or(0);
    const char* at = list->data();
    const char* const end = at + list->size();
    const auto read_number = [&] {
      int value = 0;
      const auto [stop, problem] = std::from_chars(at, end, value);
      if (problem != std::errc() || value < 1) {
        wrong();
      }
      at = stop;
      return value;
    };
    while (at != end) {
      const int size = read_number();
      int times = 1;
      if (end - at >= 2 && at[0] == '(' && at[1] == 'x') {
        at += 2;
        times = read_number();
        if (at == end || *at != ')') {
          wrong();
        }
        ++at;
      }
      if (machine < times) {
        return size;
      }
      machine -= times;
      if (at != end) {
        if (*at != ',' || at + 1 == end) {
          wrong();
        }
        ++at;
      }
    }
    fail(shown(variables_.local_size) + " has no number for " + shown("SLURM_NODEID"));
  }

  [[noreturn]] void fail(std::string detail) const {
    throw usage_error({-1, 0, "detect_environment", 0, where_}, std::move(detail));
  }

  [[nodiscard]] std::string shown(const char* name) const {
    return std::string(name) + "=\"" + read_(name).value_or("") + '"';
  }

  void require_below(const char* name, int value, const char* limit_name, int limit) const {
    if (value >= limit) {
      fail(shown(name) + " must be less than " + shown(limit_name));
    }
  }

  /// Throws usage_error unless all needed variables are set. Its text lists those found and those missing.
  void require(bool job_needed) const {
    std::string found;
    std::string missing;
    const auto classify = [&](const char* name, bool needed) {
      if (read_(name)) {
        found += (found.empty() ? "" : ", ") + shown(name);
      } else if (needed) {
        missing += (missing.empty() ? "" : ", ") + std::string(name);
      }
    };
    classify(variables_.rank, true);
    classify(variables_.size, true);
    for (const char* name : variables_.job) {
      classify(name, job_needed);
    }
    classify(variables_.local_rank, false);
    classify(variables_.local_size, false);
    for (const char* name : variables_.refine) {
      classify(name, false);
    }
    if (!missing.empty()) {
      fail(std::string(variables_.source) + " variables are incomplete: found " + found + "; missing " + missing);
    }
  }

  launcher_variables variables_;
  environment_reader read_;
  std::source_location where_;
};

/// Returns a name for the process that has launched this one and the other ranks of this machine: its number, and the
/// time at which it started. It is MPICH's proxy, which may be behind a shell, or else the parent.
HFCOMM_INLINE std::string launching_process() {
  const auto name_of = [](pid_t pid) {
    return std::to_string(pid) + '/' + std::to_string(rendezvous::describe_process(pid).start);
  };
  const pid_t parent = ::getppid();
  for (pid_t pid = parent; pid > 1;) {
    const auto process = rendezvous::describe_process(pid);
    if (process.name == "hydra_pmi_proxy") {
      return name_of(pid);
    }
    pid = process.parent;
  }
  return name_of(parent);
}

/// Throws usage_error where a launcher has started this process as one of several, and its variables do not tell
/// enough. Otherwise each process would be a job of its own, and compute the same.
HFCOMM_INLINE void refuse_unknown_launchers(environment_reader read, std::source_location where) {
  struct launcher {
    const char* name;
    const char* rank;
    const char* size;  // null where no variable has it
  };
  constexpr std::array launchers{launcher{"Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
                                 launcher{"jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},
                                 launcher{"MVAPICH2", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
                                 launcher{"PALS", "PALS_RANKID", nullptr},
                                 launcher{"ALPS", "ALPS_APP_PE", nullptr},
                                 launcher{"PMIx", "PMIX_RANK", nullptr}};
  for (const launcher& one : launchers) {
    const auto rank = read(one.rank);
    const auto size = one.size != nullptr ? read(one.size) : std::nullopt;
    if ((rank || size) && size != "1") {
      const char* const known = rank ? one.rank : one.size;
      throw usage_error({-1, 0, "detect_environment", 0, where},
                        std::string(one.name) + " has started this process (" + known + "=\"" + (rank ? *rank : *size) +
                            "\"), but hfcomm does not understand its variables; set HFCOMM_RANK, HFCOMM_WORLD_SIZE and "
                            "HFCOMM_JOB for each process, or unset " +
                            known + " for a job of one");
    }
  }
}

}  // namespace detail

HFCOMM_INLINE launch_environment detect_environment(environment_reader read, std::source_location where) {
  const detail::launcher_parser own({.source = "HFCOMM_*",
                                     .rank = "HFCOMM_RANK",
                                     .size = "HFCOMM_WORLD_SIZE",
                                     .local_rank = "HFCOMM_LOCAL_RANK",
                                     .local_size = "HFCOMM_LOCAL_SIZE",
                                     .job = {"HFCOMM_JOB"},
                                     .refine = {}},
                                    read, where);
  if (own.present()) {
    launch_environment result = own.parse();
    if (result.world_size > 1) {
      result.rendezvous = "hfcomm:" + own.text("HFCOMM_JOB");
    }
    return result;
  }
  const detail::launcher_parser torchrun({.source = "torchrun",
                                          .rank = "RANK",
                                          .size = "WORLD_SIZE",
                                          .local_rank = "LOCAL_RANK",
                                          .local_size = "LOCAL_WORLD_SIZE",
                                          .job = {"MASTER_ADDR", "MASTER_PORT"},
                                          .refine = {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}},
                                         read, where);
  if (torchrun.present()) {
    launch_environment result = torchrun.parse();
    if (result.world_size > 1) {
      // An address has no slash and the free text comes last, so different jobs have different keys. The restart count
      // keeps a restarted job apart from remaining processes of the earlier one.
      const int port = *torchrun.number("MASTER_PORT", 1, 65535);
      const int restarts = torchrun.number("TORCHELASTIC_RESTART_COUNT", 0).value_or(0);
      result.rendezvous = "torchrun:" + torchrun.text("MASTER_ADDR") + '/' + std::to_string(port) + '/' +
                          std::to_string(restarts) + '/' + read("TORCHELASTIC_RUN_ID").value_or("");
    }
    return result;
  }
  const detail::launcher_parser open_mpi({.source = "Open MPI",
                                          .rank = "OMPI_COMM_WORLD_RANK",
                                          .size = "OMPI_COMM_WORLD_SIZE",
                                          .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
                                          .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
                                          .job = {"PMIX_NAMESPACE"},
                                          .refine = {}},
                                         read, where);
  if (open_mpi.present()) {
    launch_environment result = open_mpi.parse();
    if (result.world_size > 1) {
      result.rendezvous = "openmpi:" + open_mpi.text("PMIX_NAMESPACE");
    }
    return result;
  }
  const detail::launcher_parser pmi({.source = "PMI",
                                     .rank = "PMI_RANK",
                                     .size = "PMI_SIZE",
                                     .local_rank = "MPI_LOCALRANKID",
                                     .local_size = "MPI_LOCALNRANKS",
                                     .job = {},
                                     .refine = {"PMI_JOBID"}},
                                    read, where);
  if (pmi.present()) {
    launch_environment result = pmi.parse();
    if (result.world_size > 1) {
      const auto job = read("PMI_JOBID");
      result.rendezvous = "pmi:" + (job ? *job : detail::launching_process());
    }
    return result;
  }
  const detail::launcher_parser slurm({.source = "Slurm",
                                       .rank = "SLURM_PROCID",
                                       .size = "SLURM_STEP_NUM_TASKS",
                                       .local_rank = "SLURM_LOCALID",
                                       .local_size = "SLURM_STEP_TASKS_PER_NODE",
                                       .job = {"SLURM_JOB_ID", "SLURM_STEP_ID"},
                                       .refine = {"SLURM_NODEID", "SLURM_RESTART_COUNT"},
                                       .sizes_of_all_machines = true},
                                      read, where);
  if (read("SLURM_STEP_NUM_TASKS")) {
    launch_environment result = slurm.parse();
    if (result.world_size > 1) {
      const int restarts = slurm.number("SLURM_RESTART_COUNT", 0).value_or(0);
      result.rendezvous =
          "slurm:" + slurm.text("SLURM_JOB_ID") + '.' + slurm.text("SLURM_STEP_ID") + '/' + std::to_string(restarts);
    }
    return result;
  }
  detail::refuse_unknown_launchers(read, where);
  launch_environment alone;
  alone.source = "none";
  return alone;
}

HFCOMM_INLINE launch_environment detect_environment(std::source_location where) {
  const auto read = [](const char* name) { return read_process_environment(name); };
  return detect_environment(read, where);
}

}  // namespace hfcomm
