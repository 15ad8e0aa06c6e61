// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>

#include <hfcomm/machine/roster.hpp>
#include <hfcomm/machine/segment_broker.hpp>

namespace hfcomm::engines {

/// What all groups of one job on one machine have in common.
struct local_job {
  std::string id;  ///< Random; no other job has it.
  std::shared_ptr<rendezvous::roster> roster;
  std::shared_ptr<rendezvous::segment_broker> broker;
};

}  // namespace hfcomm::engines
