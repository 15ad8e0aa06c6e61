// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <vector>

#include <hfcomm/engine/hierarchical/machine_tree.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/steps.hpp>

namespace hfcomm::engines {

/// The common part of the ports, whatever process their ranks are in.
class connected_port : public agent_port {
 public:
  [[nodiscard]] std::unique_ptr<machine_collectives> make_collectives(lockstep& steps,
                                                                      const std::vector<int>& machine_of) override {
    return std::make_unique<machine_tree>(steps, machine_of);
  }
};

}  // namespace hfcomm::engines
