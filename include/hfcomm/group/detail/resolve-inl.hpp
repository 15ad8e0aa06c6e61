// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/options.hpp>
#include <hfcomm/group/detail/connect_by.hpp>
#include <hfcomm/group/detail/root_address.hpp>
#include <hfcomm/group/environment.hpp>

namespace hfcomm::detail {

/// Returns the job of an init_method that names it. Throws usage_error where the address or the path is malformed.
[[gnu::cold]] HFCOMM_INLINE launch_environment named_job(const init_options& options, const error_context& context) {
  const std::string& method = options.init_method;
  launch_environment job{options.rank, options.world_size, options.rank, options.world_size, method, "init_options"};
  const std::string place = method.substr(method.find("://") + 3);
  if (method.starts_with("tcp://")) {
    auto address = parse_host_and_port(place);
    if (!address) {
      throw_error<usage_error>(context, {"init_method \"", method,
                                         "\" has no address such as tcp://node7:29500 or "
                                         "tcp://[fd77::1]:29500"});
    }
    set_root_address(job, std::move(*address));
  } else if (method.starts_with("file://")) {
    if (!place.starts_with('/') || place.ends_with('/')) {
      throw_error<usage_error>(
          context, {"init_method \"", method, "\" names no file; its path begins with a slash: file:///path"});
    }
    job.lookup = root_lookup::file;
    job.root_file = place;
  }
  return job;
}

[[gnu::cold]] HFCOMM_INLINE launch_environment resolve(const init_options& options, const error_context& context) {
  const std::string& method = options.init_method;
  const bool named = method.starts_with("tcp://") || method.starts_with("file://") || method.starts_with("job://");
  if (!named && !method.empty() && method != "env://") {
    throw_error<usage_error>(
        context, {"init_method \"", method, "\" is none of \"\", env://, tcp://host:port, file:///path, job://name"});
  }
  if (named != (options.rank >= 0) || named != (options.world_size >= 0)) {
    throw_error<usage_error>(
        context, {named ? concat({"init_method \"", method, "\" needs rank and world_size as well"})
                        : std::string("rank and world_size are given, but no init_method that says where the ranks "
                                      "meet (tcp://host:port, file:///path or job://name)")});
  }
  if (named) {
    if (options.world_size < 1 || options.rank >= options.world_size) {
      throw_error<usage_error>(context, {"rank ", options.rank, " of ", options.world_size, " is not possible"});
    }
    return named_job(options, context);
  }
  launch_environment found = detect_environment();
  if (method == "env://" && found.source == "none") {
    throw_error<usage_error>(
        context,
        {"init_method is env://, but none of these pairs is set: HFCOMM_RANK and HFCOMM_WORLD_SIZE; RANK and "
         "WORLD_SIZE; OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE (Open MPI); FLUX_TASK_RANK and FLUX_JOB_SIZE "
         "(Flux); "
         "PALS_RANKID and PMI_SIZE (PALS); JSM_NAMESPACE_RANK and JSM_NAMESPACE_SIZE (jsrun); PMI_RANK and PMI_SIZE "
         "(MPICH, Intel MPI); SLURM_PROCID and SLURM_STEP_NUM_TASKS (Slurm)"});
  }
  return found;
}

}  // namespace hfcomm::detail
