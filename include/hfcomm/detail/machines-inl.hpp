// SPDX-License-Identifier: MIT
#pragma once

/// All definitions that only jobs of several machines need.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/machines.hpp>

#include <hfcomm/core/config.hpp>
#include <hfcomm/engine/links/links.hpp>
#include <hfcomm/group/detail/pretended_machines.hpp>
#include <hfcomm/group/detail/root_exchange-inl.hpp>
#include <hfcomm/group/detail/several_machines.hpp>
#include <hfcomm/machine/detail/network_interfaces-inl.hpp>
#include <hfcomm/machine/network_interfaces.hpp>
#include <hfcomm/rendezvous/credentials.hpp>
#include <hfcomm/rendezvous/detail/address_exchange-inl.hpp>
#include <hfcomm/rendezvous/detail/address_file-inl.hpp>
#include <hfcomm/rendezvous/detail/pmi_client-inl.hpp>
#include <hfcomm/rendezvous/detail/pmix_exchange-inl.hpp>
#include <hfcomm/rendezvous/job_start.hpp>

namespace hfcomm::detail {

/// Returns the addresses by which other machines may reach this one.
HFCOMM_INLINE std::vector<std::string> addresses_of_this_machine() {
  std::vector<std::string> hosts;
  const auto chosen = read_process_environment("HFCOMM_INTERFACE").value_or(std::string());
  for (const auto& one : rendezvous::reachable_addresses(rendezvous::network_addresses(), chosen)) {
    hosts.push_back(one.address);
  }
  return hosts;
}

HFCOMM_INLINE rendezvous::membership join_machines(const launch_environment& who, const init_options& options,
                                                   std::unique_ptr<rendezvous::address_exchange> exchange,
                                                   const error_context& context) {
  rendezvous::job_options job;
  job.local_key = who.rendezvous;
  // PMI's key names the launcher's process of this machine; there the address has a random text beside it.
  job.job_key = who.lookup == root_lookup::pmi ? std::string("pmi") : who.rendezvous;
  job.rank = who.rank;
  job.world_size = who.world_size;
  job.epoch = static_cast<std::uint64_t>(who.epoch);
  job.timeout = options.start_timeout;
  job.silence_limit = options.silence_limit;
  job.has_several_machines = who.has_several_machines();
  job.exchange = exchange ? std::move(exchange) : make_address_exchange(who, context);
  job.root_ports = who.root_ports;
  job.proof =
      rendezvous::find_credentials(options.secret, [](const char* name) { return read_process_environment(name); });
  engines::prepare_link(options.link);
  job.make_link = [name = options.link] { return engines::make_link(name); };
  job.own_addresses = &addresses_of_this_machine;
  return rendezvous::join_job(std::move(job));
}

[[gnu::used]] HFCOMM_INLINE const several_machines& the_several_machines() noexcept {
  static constexpr several_machines only{
      .join = &join_machines, .abandon = &engines::abandon_links, .pretend = &pretend_several_machines};
  return only;
}

}  // namespace hfcomm::detail
