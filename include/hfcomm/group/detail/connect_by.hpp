// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include <hfcomm/core/error.hpp>
#include <hfcomm/core/options.hpp>
#include <hfcomm/group/environment.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/rendezvous/address_exchange.hpp>

namespace hfcomm::detail {

/// Returns this process's place in its job, from the options or else from the environment. Throws usage_error.
[[gnu::cold]] launch_environment resolve(const init_options& options, const error_context& context);

/// Does what `connect` does for the job that `who` describes, whose ranks may be on several machines and find the root
/// by `exchange`. Where that is null, they find it as `who` says. Errors have `context`.
process_group connect_by(launch_environment who, const init_options& options,
                         std::unique_ptr<rendezvous::address_exchange> exchange, const error_context& context);

}  // namespace hfcomm::detail
