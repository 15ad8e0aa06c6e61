// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <hfcomm/engine/hierarchical/large_reduction.hpp>
#include <hfcomm/engine/hierarchical/machine_agent.hpp>
#include <hfcomm/machine/agent_bell.hpp>
#include <hfcomm/machine/shared_segment.hpp>

namespace hfcomm::engines {

/// The port of ranks in the process of the agent.
class direct_agent_port final : public connected_port {
 public:
  explicit direct_agent_port(std::shared_ptr<machine_agent> agent) : agent_(std::move(agent)) {}

  [[nodiscard]] const std::shared_ptr<const rendezvous::agent_bell>& bell() const noexcept override {
    return agent_->bell();
  }
  void add_group(std::uint64_t id, const std::vector<int>& members,
                 const std::shared_ptr<rendezvous::shared_segment>& memory) override {
    agent_->add_group(id, members, memory);
  }
  [[nodiscard]] bool is_in_this_process() const noexcept override { return true; }
  void drive() noexcept override { agent_->drive(); }

 private:
  std::shared_ptr<machine_agent> agent_;
};

}  // namespace hfcomm::engines
