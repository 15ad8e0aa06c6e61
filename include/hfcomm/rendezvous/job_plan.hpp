// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/core/error.hpp>
#include <hfcomm/rendezvous/handshake.hpp>
#include <hfcomm/rendezvous/side_stream.hpp>
#include <hfcomm/serialization/encoding.hpp>
#include <hfcomm/serialization/std_types.hpp>

/// Messages of the machines' leaders while a job of several machines starts.
namespace hfcomm::rendezvous {

/// The start's messages between a leader and the root.
enum class start_kind : std::uint8_t {
  join = 1,   ///< A machine's ranks, as far as they have come, and its link's address.
  plan_part,  ///< The root has found all ranks: the beginning of the plan, or a further part.
  plan,       ///< The last part of the plan: the machines of the job.
  ready,      ///< The machine's ranks have their memory.
  go,         ///< All machines are ready.
  refused = std::to_integer<std::uint8_t>(local::refused),      ///< The ranks do not fit together.
  failed = std::to_integer<std::uint8_t>(local::failed),        ///< Another error.
  timed_out = std::to_integer<std::uint8_t>(local::timed_out),  ///< The text begins with the missing ranks.
};

/// One machine of a job, as its leader describes it.
struct machine_part {
  int leader = -1;         ///< The rank whose process describes it, and runs its agent.
  std::string host;        ///< Its host's name.
  std::vector<int> ranks;  ///< In ascending order.
  std::vector<int> pids;   ///< Of those ranks' processes.
  std::string link;        ///< The link's name.
  std::vector<std::byte> link_address;
  int milliseconds_left = -1;  ///< Until the first of its ranks gives up; negative: never.

  template <class Archive>
  void serialize(Archive& archive) {
    archive(leader, host, ranks, pids, link, link_address, milliseconds_left);
  }

  [[nodiscard]] std::vector<std::byte> encode() const {
    std::vector<std::byte> bytes;
    hfcomm::encode(*this, bytes);
    return bytes;
  }
  /// Throws decode_error.
  static machine_part decode(std::span<const std::byte> bytes, int world_size) {
    auto part = hfcomm::decode<machine_part>(bytes);
    part.require_valid(world_size);
    return part;
  }

  /// Throws decode_error unless its ranks are ranks of the job, in ascending order, and one of them leads.
  void require_valid(int world_size) const {
    const auto is_rank = [&](int rank) { return rank >= 0 && rank < world_size; };
    const auto descends = [](int one, int next) { return one >= next; };
    const bool is_ascending = std::adjacent_find(ranks.begin(), ranks.end(), descends) == ranks.end();
    if (ranks.size() != pids.size() || !std::all_of(ranks.begin(), ranks.end(), is_rank) || !is_ascending ||
        !std::binary_search(ranks.begin(), ranks.end(), leader) || host.size() > 255) {
      detail::throw_error<decode_error>({"a machine of ranks that the job does not have"});
    }
  }
};

/// The machines of a job. Machine 0 has rank 0; the others are in the order of their lowest ranks.
struct job_plan {
  std::vector<machine_part> machines;

  [[nodiscard]] std::vector<int> machine_of(int world_size) const {
    std::vector<int> result(static_cast<std::size_t>(world_size), -1);
    for (std::size_t machine = 0; machine < machines.size(); ++machine) {
      for (const int rank : machines[machine].ranks) {
        result[static_cast<std::size_t>(rank)] = static_cast<int>(machine);
      }
    }
    return result;
  }
  /// Returns the rank of each machine whose process connects it to the others.
  [[nodiscard]] std::vector<int> leaders() const {
    return of_machines([](const machine_part& part) { return part.leader; });
  }
  /// Returns the lowest rank of each machine.
  [[nodiscard]] std::vector<int> first_ranks() const {
    return of_machines([](const machine_part& part) { return part.ranks.front(); });
  }

  [[nodiscard]] std::vector<std::byte> encode() const {
    std::vector<std::byte> bytes;
    hfcomm::encode(machines, bytes);
    return bytes;
  }
  /// Throws decode_error where a rank is on no machine, or on several.
  static job_plan decode(std::span<const std::byte> bytes, int world_size) {
    job_plan plan{hfcomm::decode<std::vector<machine_part>>(bytes)};
    std::size_t ranks = 0;
    for (const machine_part& part : plan.machines) {
      part.require_valid(world_size);
      ranks += part.ranks.size();
    }
    const auto machine = plan.machine_of(world_size);
    if (ranks != static_cast<std::size_t>(world_size) || std::count(machine.begin(), machine.end(), -1) != 0) {
      detail::throw_error<decode_error>({"a plan that does not have each rank once"});
    }
    return plan;
  }

  /// Throws decode_error unless `rank` leads one of the machines that do not have rank 0.
  void require_follower(int rank) const {
    const auto leads = [&](const machine_part& part) { return part.leader == rank && part.ranks.front() != 0; };
    if (std::none_of(machines.begin(), machines.end(), leads) || machines.front().ranks.front() != 0) {
      detail::throw_error<decode_error>({"a plan in which this rank does not lead its machine"});
    }
  }

 private:
  [[nodiscard]] std::vector<int> of_machines(int (*number)(const machine_part& part)) const {
    std::vector<int> result(machines.size());
    std::transform(machines.begin(), machines.end(), result.begin(), number);
    return result;
  }
};

/// Puts the parts of a plan together as they come.
class plan_receiver {
 public:
  /// Takes a part; ignores other messages. Returns whether the plan is complete. Throws engine_error where it is longer
  /// than a message may be.
  bool take(const side_message& message) {
    const auto kind = static_cast<start_kind>(message.kind);
    if (kind != start_kind::plan_part && kind != start_kind::plan) {
      return false;
    }
    if (message.bytes.size() > side_message::most_bytes - bytes_.size()) {
      detail::throw_error<engine_error>({"rank 0 has sent a plan of the job with more than 16 MiB"});
    }
    bytes_.insert(bytes_.end(), message.bytes.begin(), message.bytes.end());
    return kind == start_kind::plan;
  }
  /// Returns the plan, encoded.
  [[nodiscard]] const std::vector<std::byte>& bytes() const noexcept { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace hfcomm::rendezvous
