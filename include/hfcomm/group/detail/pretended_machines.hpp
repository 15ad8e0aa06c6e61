// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include <unistd.h>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/engine/hierarchical/machine_agent.hpp>
#include <hfcomm/engine/hierarchical/memory_control.hpp>
#include <hfcomm/engine/links/tcp.hpp>
#include <hfcomm/group/detail/several_machines.hpp>
#include <hfcomm/machine/segment_broker.hpp>
#include <hfcomm/machine/shared_segment.hpp>
#include <hfcomm/rendezvous/connected_memory.hpp>
#include <hfcomm/rendezvous/job_plan.hpp>
#include <hfcomm/rendezvous/machine_memory.hpp>

namespace hfcomm::detail {

/// The agents of machines whose ranks are threads of this process. What passes between machines goes through them.
class pretended_agents {
 public:
  /// Throws engine_error where there is no loopback interface.
  explicit pretended_agents(std::size_t machines)
      : links_(machines),
        addresses_(machines),
        controls_(std::make_shared<engines::memory_control::hub>(static_cast<int>(machines))) {
    for (std::size_t machine = 0; machine < machines; ++machine) {
      links_[machine] = std::make_unique<engines::tcp>("127.0.0.1");
      addresses_[machine] = links_[machine]->address();
    }
  }
  /// Waits until what the ranks wrote has arrived, because agents answer each other until then.
  ~pretended_agents() {
    for (const std::chrono::seconds limit : {std::chrono::seconds(0), std::chrono::seconds(10)}) {
      for (const auto& agent : agents_) {  // all begin before one is waited for
        static_cast<void>(agent->finish(limit));
      }
    }
  }
  pretended_agents(const pretended_agents&) = delete;
  pretended_agents& operator=(const pretended_agents&) = delete;

  /// Makes the agent of the next machine.
  std::shared_ptr<engines::machine_agent> add(const rendezvous::job_plan& plan,
                                              const rendezvous::machine_memory& memory, int ranks) {
    const int machine = static_cast<int>(agents_.size());
    links_[agents_.size()]->open(machine, addresses_);
    agents_.push_back(
        rendezvous::make_agent(plan, memory, ranks,
                               {.self = machine,
                                .link = std::move(links_[agents_.size()]),
                                .control = std::make_unique<engines::memory_control>(controls_, machine)}));
    return agents_.back();
  }

  void start() {
    for (const auto& agent : agents_) {
      agent->start();
    }
  }

 private:
  std::vector<std::unique_ptr<engines::link>> links_;  // of machines that have no agent yet
  std::vector<std::vector<std::byte>> addresses_;
  std::shared_ptr<engines::memory_control::hub> controls_;
  std::vector<std::shared_ptr<engines::machine_agent>> agents_;  // by machine
};

/// Makes a job on machines whose ranks are threads of this process, as many each as `sizes` has. Each machine has a
/// roster and memory of its own.
inline pretended_job pretend_several_machines(const std::vector<int>& sizes) {
  rendezvous::job_plan plan;
  int ranks = 0;
  for (const int size : sizes) {
    rendezvous::machine_part part;
    part.leader = ranks;
    part.host = concat({"machine ", plan.machines.size()});
    part.ranks.resize(static_cast<std::size_t>(size));
    std::iota(part.ranks.begin(), part.ranks.end(), ranks);
    part.pids.assign(part.ranks.size(), static_cast<int>(::getpid()));
    ranks += size;
    plan.machines.push_back(std::move(part));
  }
  const auto broker = std::make_shared<rendezvous::thread_broker>();
  const auto agents = std::make_shared<pretended_agents>(sizes.size());
  pretended_job job{.machines = agents, .memberships = {}};
  for (std::size_t machine = 0; machine < sizes.size(); ++machine) {
    const rendezvous::machine_part& part = plan.machines[machine];
    const auto memory = rendezvous::make_connected_memory(plan, static_cast<int>(machine), ranks,
                                                          &rendezvous::shared_segment::anonymous);
    const auto agent = agents->add(plan, memory, ranks);
    for (const int rank : part.ranks) {
      job.memberships.push_back(rendezvous::enter_machine(memory, agent, part.leader, rank, ranks, broker));
    }
  }
  agents->start();
  return job;
}

}  // namespace hfcomm::detail
