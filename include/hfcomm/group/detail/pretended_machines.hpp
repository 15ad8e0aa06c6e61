// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/engine/hierarchical/direct_agent_port.hpp>
#include <hfcomm/engine/hierarchical/machine_agent.hpp>
#include <hfcomm/engine/hierarchical/memory_control.hpp>
#include <hfcomm/engine/links/memory_link.hpp>
#include <hfcomm/group/detail/several_machines.hpp>
#include <hfcomm/machine/roster.hpp>
#include <hfcomm/machine/segment_broker.hpp>
#include <hfcomm/machine/shared_segment.hpp>
#include <hfcomm/rendezvous/connected_memory.hpp>
#include <hfcomm/rendezvous/job_plan.hpp>
#include <hfcomm/rendezvous/machine_memory.hpp>

namespace hfcomm::detail {

/// Machines whose ranks are threads of this process. Each has a roster and memory of its own. What passes between them
/// goes through their agents.
class pretended_machines final : public pretended_job {
 public:
  /// `sizes` has the number of ranks of each machine.
  explicit pretended_machines(const std::vector<int>& sizes) {
    for (const int size : sizes) {
      rendezvous::machine_part part;
      part.leader = ranks_;
      part.host = concat({"machine ", plan_.machines.size()});
      for (int place = 0; place < size; ++place) {
        part.ranks.push_back(ranks_++);
        part.pids.push_back(static_cast<int>(::getpid()));
      }
      plan_.machines.push_back(std::move(part));
    }
    machine_of_ = plan_.machine_of(ranks_);
    for (int machine = 0; machine < static_cast<int>(sizes.size()); ++machine) {
      memories_.push_back(
          rendezvous::make_connected_memory(plan_, machine, ranks_, &rendezvous::shared_segment::anonymous));
    }
    start_agents();
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto machine = static_cast<std::size_t>(machine_of_[static_cast<std::size_t>(rank)]);
      auto port = std::make_shared<engines::direct_agent_port>(agents_[machine]);
      memberships_.push_back(rendezvous::enter_machine(memories_[machine], std::move(port),
                                                       plan_.machines[machine].leader, rank, ranks_, broker_));
    }
    for (const auto& agent : agents_) {
      agent->start();
    }
  }
  /// Waits until what the ranks wrote has arrived, because agents answer each other until then.
  ~pretended_machines() override {
    memberships_.clear();
    std::vector<std::jthread> threads;
    for (const auto& agent : agents_) {
      threads.emplace_back([&agent] { static_cast<void>(agent->finish(std::chrono::seconds(10))); });  // NOLINT
    }
  }
  pretended_machines(const pretended_machines&) = delete;
  pretended_machines& operator=(const pretended_machines&) = delete;

  [[nodiscard]] rendezvous::membership take(int rank) override {
    return std::move(memberships_[static_cast<std::size_t>(rank)]);
  }

 private:
  std::unique_ptr<engines::link> make_link(int machine) {
    auto end = network_.make_end();
    end->open(machine, {});
    return end;
  }

  void start_agents() {
    const int count = static_cast<int>(plan_.machines.size());
    const auto controls = std::make_shared<engines::control_hub>(count);
    std::vector<int> all(static_cast<std::size_t>(ranks_));
    std::iota(all.begin(), all.end(), 0);
    for (int machine = 0; machine < count; ++machine) {
      const auto& memory = memories_[static_cast<std::size_t>(machine)];
      const int leader = plan_.machines[static_cast<std::size_t>(machine)].leader;
      agents_.push_back(std::make_shared<engines::machine_agent>(
          engines::machine_agent::parts{.self = machine,
                                        .machine_of = machine_of_,
                                        .leaders = plan_.leaders(),
                                        .roster = std::make_shared<rendezvous::roster>(memory.roster, ranks_, leader),
                                        .link = make_link(machine),
                                        .control = std::make_unique<engines::memory_control>(controls, machine),
                                        .bell = memory.bell}));
      agents_.back()->add_group(rendezvous::world_group_id, all, memory.world);
      agents_.back()->add_group(rendezvous::leader_group_id, plan_.first_ranks(), memory.leaders);
    }
  }

  int ranks_ = 0;
  rendezvous::job_plan plan_;
  std::vector<int> machine_of_;  // by rank
  engines::memory_network network_;
  std::vector<rendezvous::machine_memory> memories_;             // by machine
  std::vector<std::shared_ptr<engines::machine_agent>> agents_;  // by machine
  std::shared_ptr<rendezvous::segment_broker> broker_ = std::make_shared<rendezvous::thread_broker>();
  std::vector<rendezvous::membership> memberships_;  // by rank
};

}  // namespace hfcomm::detail
