// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <hfcomm/core/element_type.hpp>
#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/engine/reduction/copy_bytes.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/operations.hpp>
#include <hfcomm/engine/shared_memory/steps.hpp>

namespace hfcomm::engines {

/// The algorithm that reduces large buffers machine by machine, where each machine has a whole subtree of the order or
/// the elements are integers. Among more ranks its transfers are so short that raw slices take less time.
/// Each rank owns a slice of a chunk. The ranks of a machine combine their elements of all slices, each rank some of
/// them. Then each owner combines what the machines have made of its slice. A machine sends 2 (M - 1) / M buffers where
/// there are M, the fewest possible.
class machine_tree final : public machine_collectives {
 public:
  /// `machine_of` has the machine of each rank, in any numbering.
  machine_tree(lockstep& steps, const std::vector<int>& machine_of)
      : steps_(steps), placement_(machine_of), machine_(placement_.machine_of(steps.rank())) {
    // Nothing may fail once this rank has published.
    const auto ranks = static_cast<std::size_t>(steps.size());
    inputs_.reserve(ranks);
    outputs_.reserve(2);
    factors_.reserve(ranks);
    local_factors_.reserve(ranks);
  }

  [[nodiscard]] bool exchange(const operation&, std::span<const std::byte>, receiver&) override { return false; }
  [[nodiscard]] bool all_to_all_v(const operation&, const rank_parts&, receiver&) override { return false; }
  [[nodiscard]] bool reduce_scatter(const operation&, std::span<const std::byte>, std::span<const std::uint64_t>,
                                    std::span<std::byte>) override {
    return false;
  }

  [[nodiscard]] bool reduce(const operation& call, std::span<const std::byte> in, std::span<std::byte> out) override {
    if (in.size() < layout::least_in_pipeline || in.size() <= steps_.sizes().one_shot_bytes ||
        placement_.most_on_a_machine() == 1 || steps_.size() > most_ranks ||
        detail::has_wider_accumulator(call.element) ||
        !(detail::is_order_free(call.element) || placement_.has_subtrees())) {
      return false;
    }
    steps_.begin(call);
    const sliced_chunks chunks(in.size(), size_of(call.element), steps_.size(), half());
    const auto do_turn = [&](std::size_t turn, std::uint64_t step) {
      if (const auto chunk = chunks.at(turn, delivery); chunk && call.receives(rank())) {
        deliver(chunks, *chunk, step, out);
      }
      if (const auto chunk = chunks.at(turn, conclusion)) {
        conclude(call, chunks, *chunk, step, out);
      }
      if (const auto chunk = chunks.at(turn, combination)) {
        combine(call, chunks, *chunk, step, in);
      }
      if (const auto chunk = chunks.at(turn, staging)) {
        // Except the slices that this rank combines.
        chunks.stage(in, *chunk, steps_.slot(rank(), steps_.next()),
                     [&](int owner) { return carrier(machine_, owner) != rank(); });
      }
    };
    run_pipeline(steps_, call, chunks.count() + delivery, [&] { gather_factors(call); }, do_turn);
    return true;
  }

 private:
  static constexpr int most_ranks = 32;
  // The turns of chunk 0.
  static constexpr std::size_t staging = 0;
  static constexpr std::size_t combination = 2;
  static constexpr std::size_t conclusion = 4;
  static constexpr std::size_t delivery = 6;

  [[nodiscard]] int rank() const noexcept { return steps_.rank(); }
  /// Returns the offset of the second half of a slot, which has results. The first has the elements of this machine.
  [[nodiscard]] std::size_t half() const noexcept { return steps_.sizes().slot_bytes / 2; }
  /// Returns the rank of a machine that combines the machine's elements of a slice.
  [[nodiscard]] int carrier(int machine, int owner) const {
    const auto ranks = placement_.ranks_of(machine);
    return placement_.machine_of(owner) == machine ? owner : ranks[static_cast<std::size_t>(owner) % ranks.size()];
  }

  /// Each rank's factor of a premultiplied sum goes with its elements.
  void gather_factors(const operation& call) {
    steps_.gather_factors(call, factors_);
    local_factors_.clear();
    if (!factors_.empty()) {
      for (const int local : placement_.ranks_of(machine_)) {
        local_factors_.push_back(factors_[static_cast<std::size_t>(local)]);
      }
    }
  }

  /// Combines this machine's elements of the slices that this rank carries. `step` has what is read.
  void combine(const operation& call, const sliced_chunks& chunks, std::size_t chunk, std::uint64_t step,
               std::span<const std::byte> in) {
    for (int owner = 0; owner < steps_.size(); ++owner) {
      const auto [begin, end] = chunks.elements(chunk, owner);
      if (carrier(machine_, owner) != rank() || begin == end) {
        continue;
      }
      const std::size_t place = chunks.place(owner);
      inputs_.clear();
      for (const int local : placement_.ranks_of(machine_)) {
        inputs_.push_back(local == rank() ? in.data() + begin * chunks.width() : steps_.slot(local, step) + place);
      }
      // The owner divides the sum of an average.
      const reduce_kind op = call.op == reduce_kind::average ? reduce_kind::sum : call.op;
      detail::run_kernel(call.kernel, op, inputs_, steps_.slot(rank(), steps_.next()) + place, end - begin,
                         local_factors_);
      steps_.note_part(place, (end - begin) * chunks.width(), owner);
    }
  }

  /// Combines what the machines have made of this rank's slice.
  void conclude(const operation& call, const sliced_chunks& chunks, std::size_t chunk, std::uint64_t step,
                std::span<std::byte> out) {
    const auto [begin, end] = chunks.elements(chunk, rank());
    if (begin == end) {
      return;
    }
    const std::size_t place = chunks.place(rank());
    inputs_.clear();
    for (int machine = 0; machine < placement_.machines(); ++machine) {
      inputs_.push_back(steps_.slot(carrier(machine, rank()), step) + place);
    }
    outputs_.assign(1, steps_.slot(rank(), steps_.next()) + half() + place);
    if (call.receives(rank())) {
      outputs_.push_back(out.data() + begin * chunks.width());
    }
    const reduce_kind op = call.op == reduce_kind::premultiplied_sum ? reduce_kind::sum : call.op;
    detail::run_kernel(call.kernel, op, inputs_, outputs_, end - begin, {}, static_cast<std::size_t>(steps_.size()));
    steps_.note_part(half() + place, (end - begin) * chunks.width(),
                     call.pattern == movement::to_root ? call.root : lockstep::everyone);
  }

  /// Copies the results of a chunk to the output.
  void deliver(const sliced_chunks& chunks, std::size_t chunk, std::uint64_t step, std::span<std::byte> out) {
    for (int owner = 0; owner < steps_.size(); ++owner) {
      const auto [begin, end] = chunks.elements(chunk, owner);
      if (owner != rank() && begin != end) {
        detail::copy_bytes(out.data() + begin * chunks.width(), steps_.slot(owner, step) + half() + chunks.place(owner),
                           (end - begin) * chunks.width());
      }
    }
  }

  lockstep& steps_;
  group_placement placement_;
  int machine_;
  detail::plain_list<const std::byte*> inputs_;  // scratch: where the elements of a slice are
  detail::plain_list<std::byte*> outputs_;       // scratch: where they go
  detail::plain_list<double> factors_;           // scratch: each rank's factor of a premultiplied sum
  detail::plain_list<double> local_factors_;     // scratch: those of this machine's ranks
};

}  // namespace hfcomm::engines
