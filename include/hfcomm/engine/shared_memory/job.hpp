// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include <hfcomm/machine/roster.hpp>
#include <hfcomm/machine/segment_broker.hpp>

namespace hfcomm::engines {

/// State that all groups of one job on one machine share.
struct local_job {
  std::shared_ptr<rendezvous::roster> roster;
  std::shared_ptr<rendezvous::segment_broker> broker;
};

}  // namespace hfcomm::engines
