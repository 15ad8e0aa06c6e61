// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include <hfcomm/machine/agent_bell.hpp>
#include <hfcomm/machine/roster.hpp>
#include <hfcomm/machine/segment_broker.hpp>
#include <hfcomm/machine/shared_segment.hpp>

namespace hfcomm::engines {

class lockstep;
class receiver;
struct operation;
struct rank_parts;

/// The collectives of a group that has ranks on several machines. Each function does what that of host_engine does,
/// where it suits, and returns whether it did. All ranks that make the same call agree.
class machine_collectives {
 public:
  virtual ~machine_collectives() = default;

  virtual bool exchange(const operation& call, std::span<const std::byte> contribution, receiver& out) = 0;
  virtual bool reduce(const operation& call, std::span<const std::byte> in, std::span<std::byte> out) = 0;
  virtual bool all_to_all_v(const operation& call, const rank_parts& mine, receiver& out) = 0;
  virtual bool reduce_scatter(const operation& call, std::span<const std::byte> in,
                              std::span<const std::uint64_t> parts, std::span<std::byte> out) = 0;
};

/// A rank's connection to the agent of its machine, which carries what other machines need. Any thread may call.
class agent_port {
 public:
  virtual ~agent_port() = default;

  [[nodiscard]] virtual const std::shared_ptr<const rendezvous::agent_bell>& bell() const noexcept = 0;

  /// Gives the agent this machine's memory of a new group. `members` are indices into the job's roster. Returns when
  /// the agent takes what comes from other machines for it. Throws engine_error.
  virtual void add_group(std::uint64_t id, const std::vector<int>& members,
                         const std::shared_ptr<rendezvous::shared_segment>& memory) = 0;

  /// Makes the collectives of a group that has ranks on several machines: `machine_of` each.
  [[nodiscard]] virtual std::unique_ptr<machine_collectives> make_collectives(lockstep& steps,
                                                                              const std::vector<int>& machine_of) = 0;

  /// Returns whether `drive` does anything.
  [[nodiscard]] virtual bool is_in_this_process() const noexcept { return false; }
  /// Carries what there is, where the agent is in this process. For a rank that waits.
  virtual void drive() noexcept {}
};

/// State that all groups of one job on one machine share.
struct local_job {
  std::shared_ptr<rendezvous::roster> roster;
  /// Set from the beginning where the ranks are threads.
  std::shared_ptr<rendezvous::segment_broker> broker{};
  std::once_flag broker_made{};
  std::vector<int> machine_of{};       ///< The machine of each rank of the job; empty where there is only one.
  std::shared_ptr<agent_port> port{};  ///< Null where there is only one machine.

  [[nodiscard]] int machine(int index) const noexcept {
    return machine_of.empty() ? 0 : machine_of[static_cast<std::size_t>(index)];
  }
  /// Returns a rank's number among the ranks of its machine.
  [[nodiscard]] int local_rank(int index) const noexcept {
    int before = 0;
    for (int other = 0; other < index; ++other) {
      before += machine(other) == machine(index) ? 1 : 0;
    }
    return before;
  }
  /// Returns whether these ranks are on several machines.
  [[nodiscard]] bool spans_machines(const std::vector<int>& members) const noexcept {
    for (const int member : members) {
      if (machine(member) != machine(members.front())) {
        return true;
      }
    }
    return false;
  }
};

}  // namespace hfcomm::engines
