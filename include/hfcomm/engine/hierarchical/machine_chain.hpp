// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <hfcomm/core/element_type.hpp>
#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/engine/reduction/copy_bytes.hpp>
#include <hfcomm/engine/reduction/kernel.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/operations.hpp>
#include <hfcomm/engine/shared_memory/steps.hpp>

namespace hfcomm::engines {

/// The algorithm that reduces large buffers along the chain of machines, in rank order: a machine folds its ranks'
/// elements, one rank after the other, onto what the machine before it has folded. So the bits are those of one
/// machine, and between two machines the bytes of a buffer go once in each direction, however many ranks each of them
/// has.
///
/// A chunk is divided into lanes, at most one for each rank of a machine: the ranks of a machine fold side by side.
class machine_chain {
 public:
  machine_chain(lockstep& steps, const group_placement& placement)
      : steps_(steps),
        placement_(placement),
        lanes_(placement.most_on_a_machine()),
        machine_(placement.machine_of(steps.rank())) {
    // Nothing may fail once this rank has published.
    inputs_.reserve(static_cast<std::size_t>(steps.size()) + 1);
    outputs_.reserve(2);
    factors_.reserve(static_cast<std::size_t>(steps.size()));
    local_factors_.reserve(static_cast<std::size_t>(steps.size()) + 1);
  }

  /// Returns whether this is how to reduce `bytes` of each rank. All ranks that make the same call agree.
  [[nodiscard]] bool suits(const operation& call, std::size_t bytes) const {
    const int machines = placement_.machines();
    if (call.order != reduction_order::rank || machines < 2 || !placement_.is_contiguous() ||
        bytes < layout::least_in_pipeline || detail::has_wider_accumulator(call.element)) {
      return false;
    }
    // What the machine that sends most sends, in buffers: here, and where each rank reduces a share of all elements.
    const bool everywhere = call.pattern == movement::to_all;
    const double here = everywhere && machines > 2 ? 2 : 1;
    double shares = 0;
    for (int machine = 0; machine < machines; ++machine) {
      const auto ranks = static_cast<double>(placement_.ranks_of(machine).size());
      const double others = steps_.size() - ranks;
      shares = std::max(shares, ranks * (others + (everywhere ? machines - 1 : 1)) / steps_.size());
    }
    return here < shares;
  }

  void run(const operation& call, std::span<const std::byte> in, std::span<std::byte> out) {
    const schedule times(*this, call, in.size());
    const auto do_turn = [&](std::size_t turn, std::uint64_t step) {
      if (const auto chunk = times.chunks.at(turn, times.delivery)) {
        deliver(call, times.chunks, *chunk, step, out);
      }
      if (const auto chunk = times.chunks.at(turn, times.fold)) {
        fold(call, times.chunks, *chunk, step, in, out);
      }
      if (const auto chunk = times.chunks.at(turn, times.staging)) {
        // Except the lanes that this rank folds itself.
        times.chunks.stage(in, *chunk, steps_.slot(rank(), steps_.next()),
                           [&](int lane) { return carrier(machine_, lane) != rank(); });
      }
    };
    run_pipeline(steps_, call, times.turns, [&] { gather_factors(call); }, do_turn);
  }

 private:
  /// The turns in which this machine handles chunk 0. It handles each chunk one turn after the chunk before.
  struct schedule {
    schedule(const machine_chain& chain, const operation& call, std::size_t bytes)
        : chunks(bytes, size_of(call.element), chain.lanes_, chain.half()) {
      const auto machines = static_cast<std::size_t>(chain.placement_.machines());
      const auto machine = static_cast<std::size_t>(chain.machine_);
      staging = 2 * machine;
      fold = staging + 2;
      const std::size_t concluded = 2 * machines;  // the last machine's fold
      const bool is_relayed = call.pattern == movement::to_all;
      const std::size_t relays = is_relayed && machine + 2 < machines ? machines - 2 - machine : 0;
      delivery = concluded + 2 + 2 * relays;
      turns = chunks.count() + concluded + 2 + (is_relayed ? 2 * (machines - 2) : 0);
    }

    sliced_chunks chunks;
    std::size_t staging = 0;
    std::size_t fold = 0;
    std::size_t delivery = 0;
    std::size_t turns = 0;
  };

  [[nodiscard]] int rank() const noexcept { return steps_.rank(); }
  [[nodiscard]] bool is_first() const noexcept { return machine_ == 0; }
  [[nodiscard]] bool is_last() const noexcept { return machine_ + 1 == placement_.machines(); }
  [[nodiscard]] std::size_t half() const noexcept { return steps_.sizes().slot_bytes / 2; }
  /// Returns the rank of a machine that folds a lane.
  [[nodiscard]] int carrier(int machine, int lane) const {
    const auto ranks = placement_.ranks_of(machine);
    return ranks[static_cast<std::size_t>(lane) % ranks.size()];
  }

  /// Each rank's factor of a premultiplied sum goes with its elements; what other machines have folded has none.
  void gather_factors(const operation& call) {
    steps_.gather_factors(call, factors_);
    local_factors_.clear();
    if (!factors_.empty()) {
      if (!is_first()) {
        local_factors_.push_back(1);
      }
      for (const int local : placement_.ranks_of(machine_)) {
        local_factors_.push_back(factors_[static_cast<std::size_t>(local)]);
      }
    }
  }

  /// Folds the lanes of this rank onto those of the machine before. `step` has what is read.
  void fold(const operation& call, const sliced_chunks& chunks, std::size_t chunk, std::uint64_t step,
            std::span<const std::byte> in, std::span<std::byte> out) {
    const bool receives = is_last() && call.receives(rank());
    // An average is a sum that the last machine divides.
    const reduce_kind op = call.op == reduce_kind::average && !is_last() ? reduce_kind::sum : call.op;
    for (int lane = 0; lane < lanes_; ++lane) {
      const auto [begin, end] = chunks.elements(chunk, lane);
      if (carrier(machine_, lane) != rank() || begin == end) {
        continue;
      }
      inputs_.clear();
      if (!is_first()) {
        inputs_.push_back(steps_.slot(carrier(machine_ - 1, lane), step) + chunks.place(lane));
      }
      for (const int local : placement_.ranks_of(machine_)) {
        inputs_.push_back(local == rank() ? in.data() + begin * chunks.width()
                                          : steps_.slot(local, step) + chunks.place(lane));
      }
      const std::size_t place = chunks.place(lane) + (is_last() ? half() : 0);
      outputs_.assign(1, steps_.slot(rank(), steps_.next()) + place);
      if (receives) {
        outputs_.push_back(out.data() + begin * chunks.width());
      }
      detail::run_kernel(call.kernel, op, inputs_, outputs_, end - begin, local_factors_,
                         static_cast<std::size_t>(steps_.size()));
      steps_.note_part(place, (end - begin) * chunks.width(), reader_of(call, lane));
    }
  }

  /// Returns a rank that reads what this rank has folded, on the machine that it goes to.
  [[nodiscard]] int reader_of(const operation& call, int lane) const {
    if (!is_last()) {
      return carrier(machine_ + 1, lane);
    }
    return call.pattern == movement::to_root ? call.root : placement_.ranks_of(machine_ - 1).front();
  }

  /// Copies the results of a chunk to the output, and passes them on to the machine before this one.
  void deliver(const operation& call, const sliced_chunks& chunks, std::size_t chunk, std::uint64_t step,
               std::span<std::byte> out) {
    const bool is_relayed = call.pattern == movement::to_all && !is_last();
    const bool relays = is_relayed && !is_first();
    const int source = is_relayed ? machine_ + 1 : placement_.machines() - 1;
    for (int lane = 0; lane < lanes_; ++lane) {
      const auto [begin, end] = chunks.elements(chunk, lane);
      const int from = carrier(source, lane);
      if (from == rank() || begin == end) {
        continue;  // this rank has folded it straight into its output
      }
      const std::size_t place = half() + chunks.place(lane);
      const std::size_t bytes = (end - begin) * chunks.width();
      const std::byte* const result = steps_.slot(from, step) + place;
      if (call.receives(rank())) {
        detail::copy_bytes(out.data() + begin * chunks.width(), result, bytes);
      }
      if (relays && carrier(machine_, lane) == rank()) {
        detail::copy_bytes(steps_.slot(rank(), steps_.next()) + place, result, bytes);
        steps_.note_part(place, bytes, placement_.ranks_of(machine_ - 1).front());
      }
    }
  }

  lockstep& steps_;
  const group_placement& placement_;
  int lanes_;
  int machine_;
  detail::plain_list<const std::byte*> inputs_;  // scratch: where the elements of a lane are
  detail::plain_list<std::byte*> outputs_;       // scratch: where they go
  detail::plain_list<double> factors_;           // scratch: each rank's factor of a premultiplied sum
  detail::plain_list<double> local_factors_;     // scratch: of the inputs
};

}  // namespace hfcomm::engines
