// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/core/error.hpp>
#include <hfcomm/core/options.hpp>
#include <hfcomm/group/environment.hpp>

namespace hfcomm::detail {

/// Returns this process's place in its job, from the options or else from the environment. Throws usage_error.
[[gnu::cold]] launch_environment resolve(const init_options& options, const error_context& context);

}  // namespace hfcomm::detail
