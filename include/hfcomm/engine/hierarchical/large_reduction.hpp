// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include <hfcomm/engine/hierarchical/machine_chain.hpp>
#include <hfcomm/engine/hierarchical/machine_tree.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/operations.hpp>
#include <hfcomm/engine/shared_memory/steps.hpp>

namespace hfcomm::engines {

/// Reduces large buffers along the chain of machines or machine by machine.
class large_reduction final : public machine_reduction {
 public:
  large_reduction(lockstep& steps, const group_placement& placement, ordered_fold& fold)
      : chain_(steps, placement), tree_(steps, placement, fold) {}

  [[nodiscard]] bool run(const operation& call, std::span<const std::byte> in, std::span<std::byte> out) override {
    if (chain_.suits(call, in.size())) {
      chain_.run(call, in, out);
      return true;
    }
    if (tree_.suits(call, in.size())) {
      tree_.run(call, in, out);
      return true;
    }
    return false;
  }

 private:
  machine_chain chain_;
  machine_tree tree_;
};

/// The common part of the ports, whatever process their ranks are in.
class connected_port : public agent_port {
 public:
  [[nodiscard]] std::unique_ptr<machine_reduction> make_reduction(lockstep& steps, const group_placement& placement,
                                                                  ordered_fold& fold) const override {
    return std::make_unique<large_reduction>(steps, placement, fold);
  }
};

}  // namespace hfcomm::engines
