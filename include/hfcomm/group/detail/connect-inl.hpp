// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <source_location>
#include <utility>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/group/connect.hpp>
#include <hfcomm/group/detail/connect_by.hpp>
#include <hfcomm/group/detail/group_state.hpp>
#include <hfcomm/group/detail/identity.hpp>
#include <hfcomm/group/detail/session-inl.hpp>
#include <hfcomm/group/environment.hpp>
#include <hfcomm/group/session.hpp>
#include <hfcomm/rendezvous/address_exchange.hpp>

namespace hfcomm {

namespace detail {

HFCOMM_INLINE process_group connect_by(launch_environment who, const init_options& options,
                                       std::unique_ptr<rendezvous::address_exchange> exchange,
                                       const error_context& context) {
  if (who.world_size == 1) {
    return process_group().with_timeout(options.timeout);
  }
  if (thread_identity() != nullptr) {
    detail::throw_error<usage_error>(context, {"the ranks of run_ranks are threads, and only processes can connect"});
  }
  who.rendezvous.insert(0, "connect ");  // init's jobs have names of their own
  auto joined = join_as(who, options, context, std::move(exchange));
  auto part = std::make_shared<job_part>(joined);
  auto group = group_access::make(std::move(joined.engine), options.timeout);
  group_access::state(group).job = std::move(part);
  return group;
}

}  // namespace detail

HFCOMM_INLINE process_group connect(const init_options& options, std::source_location where) {
  const error_context context{-1, 0, "connect", 0, where};
  const launch_environment who = detail::find_job(options, context);
  if (who.source == "none" && world().size() > 1) {
    detail::throw_error<usage_error>(
        context, {"no variable of a launcher tells who the members are; name the group by init_method, rank and "
                  "world_size"});
  }
  return detail::connect_by(who, options, nullptr, context);
}

}  // namespace hfcomm
