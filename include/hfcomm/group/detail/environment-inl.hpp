// SPDX-License-Identifier: MIT
#pragma once

#include <cstdlib>
#include <optional>
#include <source_location>
#include <string>
#include <utility>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/group/detail/launcher_parser.hpp>
#include <hfcomm/group/detail/launchers-inl.hpp>
#include <hfcomm/group/detail/root_address.hpp>
#include <hfcomm/group/environment.hpp>

namespace hfcomm {

HFCOMM_INLINE std::optional<std::string> read_process_environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

HFCOMM_INLINE bool launch_environment::is_one_machine() const {
  return world_size == 1 || (lookup == root_lookup::address && detail::is_loopback_host(root_host)) ||
         (local_size == world_size && node_count <= 1 && (has_local_size || lookup == root_lookup::none));
}

namespace detail {

/// Completes what the launcher's variables tell of the machine of rank 0: HFCOMM_ADDRESS comes before them, and the
/// launcher's PMIx or PMI server after them.
HFCOMM_INLINE void find_root(launch_environment& job, environment_reader read, std::source_location where) {
  if (const auto text = read("HFCOMM_ADDRESS")) {
    auto address = parse_host_and_port(*text);
    if (!address) {
      detail::throw_error<usage_error>({-1, 0, "detect_environment", 0, where},
                                       {"HFCOMM_ADDRESS=\"", *text, "\" is no host, host:port or [IPv6 address]:port"});
    }
    set_root_address(job, std::move(*address));
  } else if (job.lookup == root_lookup::none) {
    const std::string rank = std::to_string(job.rank);
    const bool speaks_pmi_1 = job.source == "PMI" || job.source == "Flux";  // `srun --mpi=pmi2` does not
    if (read("PMIX_NAMESPACE") && read("PMIX_RANK") == rank) {
      job.lookup = root_lookup::pmix;
    } else if (speaks_pmi_1 && read("PMI_FD") && read("PMI_RANK") == rank) {
      job.lookup = root_lookup::pmi;
    }
  }
}

}  // namespace detail

[[gnu::cold]] HFCOMM_INLINE launch_environment detect_environment(environment_reader read, std::source_location where) {
  for (const auto& launcher : detail::launchers::known) {
    const detail::launcher_parser parser(launcher.variables, read, where);
    if (!parser.present() || (launcher.is_outer != nullptr && launcher.is_outer(read))) {
      continue;
    }
    launch_environment job = parser.parse();
    if (job.world_size > 1) {
      if (launcher.complete != nullptr) {
        launcher.complete(job, parser, read);
      }
      detail::find_root(job, read, where);
    }
    return job;
  }
  detail::launchers::refuse_unknown(read, where);
  launch_environment alone;
  alone.source = "none";
  return alone;
}

[[gnu::cold]] HFCOMM_INLINE launch_environment detect_environment(std::source_location where) {
  const auto read = [](const char* name) { return read_process_environment(name); };
  return detect_environment(read, where);
}

}  // namespace hfcomm
