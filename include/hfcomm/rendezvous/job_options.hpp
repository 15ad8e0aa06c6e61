// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <hfcomm/engine/links/link.hpp>
#include <hfcomm/rendezvous/address_exchange.hpp>
#include <hfcomm/rendezvous/credentials.hpp>

namespace hfcomm::rendezvous {

/// A process's part of the start of a job that may have several machines.
struct job_options {
  std::string local_key;  ///< Equal on the ranks of one machine, different for other jobs.
  std::string job_key;    ///< Equal on all ranks.
  int rank = 0;
  int world_size = 1;
  std::uint64_t epoch = 0;
  std::chrono::nanoseconds timeout{};
  std::chrono::milliseconds silence_limit = std::chrono::seconds(5);
  bool has_several_machines = false;  ///< True where the launcher says so; false where it does not know.
  std::unique_ptr<address_exchange> exchange;
  std::vector<std::uint16_t> root_ports;                      ///< Empty where the exchange tells the port.
  std::optional<credentials> proof;                           ///< Needed where there are several machines.
  std::function<std::unique_ptr<engines::link>()> make_link;  ///< Called where there are several machines.
  std::function<std::vector<std::string>()> own_addresses;    ///< By which other machines reach this one.
};

}  // namespace hfcomm::rendezvous
