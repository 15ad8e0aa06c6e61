// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/core/error.hpp>
#include <hfcomm/group/environment.hpp>
#include <hfcomm/rendezvous/address_exchange.hpp>

namespace hfcomm::detail {

/// Returns the variables of launchers, and hfcomm's own of a job's start, that are set, with their values.
/// HFCOMM_SECRET is not among them.
std::vector<std::pair<std::string, std::string>> found_variables(environment_reader read);

/// Returns the exchange by which the ranks of that job find the root. To be called on each of its ranks, once for each
/// start. Throws usage_error, with the variables that were found, where nothing tells where rank 0 is; engine_error
/// where the launcher's server cannot be reached.
std::unique_ptr<rendezvous::address_exchange> make_address_exchange(const launch_environment& job,
                                                                    const error_context& context);

}  // namespace hfcomm::detail
