// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <source_location>

#include <hfcomm/group/environment.hpp>

/// The launchers that hfcomm knows. Each function returns this process's place in the launcher's job; nullopt where it
/// is not the one that has started this process. Each throws usage_error as detect_environment does.
namespace hfcomm::detail::launchers {

using result = std::optional<launch_environment>;

[[gnu::cold]] result own(environment_reader read, std::source_location where);
[[gnu::cold]] result torchrun(environment_reader read, std::source_location where);
[[gnu::cold]] result open_mpi(environment_reader read, std::source_location where);
[[gnu::cold]] result flux(environment_reader read, std::source_location where);
[[gnu::cold]] result pals(environment_reader read, std::source_location where);
[[gnu::cold]] result jsrun(environment_reader read, std::source_location where);
[[gnu::cold]] result pmi(environment_reader read, std::source_location where);
[[gnu::cold]] result slurm(environment_reader read, std::source_location where);

/// Throws usage_error where a launcher has started this process as one of several, and its variables do not tell
/// enough. Otherwise each process would be a job of its own, and compute the same.
[[gnu::cold]] void refuse_unknown(environment_reader read, std::source_location where);

}  // namespace hfcomm::detail::launchers
