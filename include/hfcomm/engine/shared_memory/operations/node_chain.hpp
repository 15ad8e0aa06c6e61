// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <hfcomm/core/element_type.hpp>
#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/core/reduce_op.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/engine/reduction/copy_bytes.hpp>
#include <hfcomm/engine/reduction/kernel.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/operations/node_route.hpp>
#include <hfcomm/engine/shared_memory/steps.hpp>
#include <hfcomm/engine/shared_memory/ways.hpp>

namespace hfcomm::engines {

/// The algorithm that reduces large buffers along the chain of a machine's NUMA nodes: a node folds its ranks'
/// elements, and adds that to what the nodes before it have folded. The elements are integers, or each node has a whole
/// subtree of the order; of three nodes the first two are one, so the bits are those of a machine with one node. The
/// bytes of a buffer go once from each node to the next, and once from the last node to each other, however many ranks
/// the nodes have.
///
/// The ranks of a node fold side by side, and each node handles a chunk two turns after the node before: all cores are
/// busy but for the first and last turns.
class node_chain {
 public:
  node_chain(lockstep& steps, peer_memory& peers, rank_nodes& nodes) : steps_(steps), peers_(peers), nodes_(nodes) {
    // Nothing may fail once this rank has published.
    const auto ranks = static_cast<std::size_t>(steps.size());
    inputs_.reserve(ranks + 1);
    outputs_.reserve(ranks + 1);
    factors_.reserve(ranks + 1);
  }

  /// The least that is reduced node by node: ranks of a node, on the average, and bytes of a buffer. With fewer ranks,
  /// the link between two nodes is not what takes longest. With fewer bytes, the first and last turns cost more than
  /// the rest gains. bench/numa_model.py has the machines on which this rests.
  struct limits {
    std::size_t ranks = 8;
    std::size_t bytes = std::size_t{8} << 20;
    bool is_tuned = true;  // false: ordinary buffers of that length take the chain without being measured
  };
  /// All ranks of the group must set the same.
  void set_limits(limits least) noexcept { least_ = least; }

  /// Returns whether this can reduce `bytes` of each rank, and is faster than where each rank reduces a share of all
  /// elements. All ranks that make the same call agree.
  [[nodiscard]] bool suits(const operation& call, std::size_t bytes) {
    const group_placement* const nodes = nodes_.placement();
    if (nodes == nullptr || detail::has_wider_accumulator(call.element) ||
        !(detail::is_order_free(call.element) || (nodes->machines() <= 3 && nodes->has_subtrees()))) {
      return false;
    }
    const auto count = static_cast<std::size_t>(nodes->machines());
    return static_cast<std::size_t>(steps_.size()) >= least_.ranks * count && bytes >= least_.bytes &&
           spares_bytes(*nodes);
  }

  /// Returns whether what `suits` is done without asking the tuner.
  [[nodiscard]] bool is_forced() const noexcept { return !least_.is_tuned; }

  /// Returns the number of reductions that were done.
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }

  /// Reduces through slots. Follows a step in which the ranks compared their calls, and told their `factors` of a
  /// premultiplied sum.
  void run(const operation& call, std::span<const std::byte> in, std::span<std::byte> out,
           std::span<const double> factors) {
    const node_route way(*nodes_.placement(), steps_.sizes(), call, rank(), in.size(), false);
    ++count_;
    gather_factors(way, factors);
    const auto do_turn = [&](std::size_t turn, std::uint64_t step) {
      if (const auto chunk = way.chunks().at(turn, way.delivery)) {
        deliver(call, way, *chunk, step, out);
      }
      if (const auto chunk = way.chunks().at(turn, way.relay)) {
        relay(way, *chunk, step, out);
      }
      if (const auto chunk = way.chunks().at(turn, way.fold)) {
        fold(
            call, way, *chunk, step,
            [&](int source, int lane, std::size_t offset) {
              return source == rank() ? in.data() + offset : steps_.slot(source, step) + way.chunks().place(lane);
            },
            [&](int lane, std::size_t offset) {
              outputs_.push_back(steps_.slot(rank(), steps_.next()) + way.sum_place(way.node(), lane));
              if (way.is_last() && call.receives(rank())) {
                outputs_.push_back(out.data() + offset);
              }
            });
      }
      if (const auto chunk = way.chunks().at(turn, way.staging)) {
        way.chunks().stage(in, *chunk, steps_.slot(rank(), steps_.next()),
                           [&](int lane) { return !way.is_carried(lane); });
      }
    };
    run_pipeline(steps_, call, way.turns, [] {}, do_turn);
  }

  /// The same where all buffers lie in the group's heaps: all ranks read and write them there. `places` has those of
  /// each rank. Only the sums that go from node to node pass through slots.
  void run_in_place(const operation& call, std::span<const layout::buffer_places> places, std::size_t bytes,
                    std::span<const double> factors) {
    const node_route way(*nodes_.placement(), steps_.sizes(), call, rank(), bytes, true);
    ++count_;
    gather_factors(way, factors);
    const auto in_of = [&](int owner) { return peers_.at(places[static_cast<std::size_t>(owner)].in); };
    const auto out_of = [&](int owner) { return peers_.at(places[static_cast<std::size_t>(owner)].out); };
    const auto do_turn = [&](std::size_t turn, std::uint64_t step) {
      if (const auto chunk = way.chunks().at(turn, way.relay)) {
        way.for_each_lane(*chunk, [&](int lane, std::size_t offset, std::size_t count) {
          if (way.is_carried(lane)) {
            std::byte* const own = out_of(rank()) + offset;
            detail::copy_bytes(own, out_of(way.carrier(way.last(), lane)) + offset, count);
            for (const int local : way.locals()) {
              if (local != rank()) {
                detail::copy_bytes(out_of(local) + offset, own, count);
              }
            }
          }
        });
      }
      if (const auto chunk = way.chunks().at(turn, way.fold)) {
        fold(
            call, way, *chunk, step,
            [&](int source, int /*lane*/, std::size_t offset) { return in_of(source) + offset; },
            [&](int lane, std::size_t offset) {
              if (!way.is_last()) {
                outputs_.push_back(steps_.slot(rank(), steps_.next()) + way.sum_place(way.node(), lane));
              } else if (call.pattern == movement::to_root) {
                outputs_.push_back(out_of(call.root) + offset);
              } else {
                for (const int local : way.locals()) {
                  outputs_.push_back(out_of(local) + offset);
                }
              }
            });
      }
    };
    run_pipeline(steps_, call, way.turns, [] {}, do_turn);
    steps_.throw_if_broken(call);
    steps_.publish(call);
    steps_.wait_all(call);
  }

 private:
  [[nodiscard]] int rank() const noexcept { return steps_.rank(); }

  /// Returns whether ranks read more of other nodes where each of them reduces its share.
  [[nodiscard]] static bool spares_bytes(const group_placement& nodes) {
    double shares = 0;  // in buffers
    for (int node = 0; node < nodes.machines(); ++node) {
      const auto ranks = static_cast<double>(nodes.ranks_of(node).size());
      shares += ranks * (nodes.size() - ranks) / nodes.size();
    }
    return nodes.machines() - 1 < shares;
  }

  /// Each rank's factor goes with its elements.
  void gather_factors(const node_route& way, std::span<const double> factors) {
    factors_.clear();
    if (!factors.empty()) {
      for (const int local : way.locals()) {
        factors_.push_back(factors[static_cast<std::size_t>(local)]);
      }
    }
  }

  /// Folds the lanes of this rank, and adds them to those of the node before. `step` has what is read. `input_of(rank,
  /// lane, offset)` returns a rank's elements, `add_outputs(lane, offset)` adds to `outputs_`.
  template <class InputOf, class AddOutputs>
  void fold(const operation& call, const node_route& way, std::size_t chunk, std::uint64_t step, InputOf&& input_of,
            AddOutputs&& add_outputs) {
    // An average is a sum that the last node divides.
    const reduce_kind own_op = call.op == reduce_kind::average ? reduce_kind::sum : call.op;
    const reduce_kind op = own_op == reduce_kind::premultiplied_sum ? reduce_kind::sum
                           : way.is_last()                          ? call.op
                                                                    : own_op;
    way.for_each_lane(chunk, [&](int lane, std::size_t offset, std::size_t count) {
      if (!way.is_carried(lane)) {
        return;
      }
      inputs_.clear();
      for (const int local : way.locals()) {
        inputs_.push_back(input_of(local, lane, offset));
      }
      outputs_.clear();
      add_outputs(lane, offset);
      const std::size_t elements = count / way.chunks().width();
      if (way.is_first()) {
        detail::run_kernel(call.kernel, own_op, inputs_, outputs_, elements, factors_);
        return;
      }
      const int before = way.node() - 1;
      std::byte* const own = steps_.slot(rank(), steps_.next()) + way.sum_place(way.node(), lane);
      detail::run_kernel(call.kernel, own_op, inputs_, own, elements, factors_);
      inputs_.assign(1, steps_.slot(way.carrier(before, lane), step) + way.sum_place(before, lane));
      inputs_.push_back(own);
      detail::run_kernel(call.kernel, op, inputs_, outputs_, elements, {}, static_cast<std::size_t>(steps_.size()));
    });
  }

  /// Copies the results of the lanes that this rank carries from the last node, for the ranks of this node.
  void relay(const node_route& way, std::size_t chunk, std::uint64_t step, std::span<std::byte> out) {
    way.for_each_lane(chunk, [&](int lane, std::size_t offset, std::size_t count) {
      if (way.is_carried(lane)) {
        detail::copy_bytes(out.data() + offset,
                           steps_.slot(way.carrier(way.last(), lane), step) + way.sum_place(way.last(), lane), count);
        detail::copy_bytes(steps_.slot(rank(), steps_.next()) + way.relay_place(lane), out.data() + offset, count);
      }
    });
  }

  /// Copies the results that this rank does not have yet from its node's slots; for a single receiver, from the last
  /// node's.
  void deliver(const operation& call, const node_route& way, std::size_t chunk, std::uint64_t step,
               std::span<std::byte> out) {
    const bool is_relayed = call.pattern == movement::to_all && !way.is_last();
    way.for_each_lane(chunk, [&](int lane, std::size_t offset, std::size_t count) {
      const int source = way.carrier(is_relayed ? way.node() : way.last(), lane);
      if (source != rank()) {
        const std::size_t place = is_relayed ? way.relay_place(lane) : way.sum_place(way.last(), lane);
        detail::copy_bytes(out.data() + offset, steps_.slot(source, step) + place, count);
      }
    });
  }

  lockstep& steps_;
  peer_memory& peers_;
  rank_nodes& nodes_;
  limits least_;
  std::uint64_t count_ = 0;
  detail::plain_list<const std::byte*> inputs_;  // scratch: where the elements of a lane are
  detail::plain_list<std::byte*> outputs_;       // scratch: where they go
  detail::plain_list<double> factors_;           // scratch: each input's factor of a premultiplied sum
};

}  // namespace hfcomm::engines
