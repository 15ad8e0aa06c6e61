// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include <hfcomm/core/element_type.hpp>
#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/core/reduce_op.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/engine/reduction/kernel.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>

namespace hfcomm::engines {

/// Reduces the elements of all ranks of a group in the order that the operation asks for.
class ordered_fold {
 public:
  explicit ordered_fold(const group_placement& placement)
      : placement_(placement),
        machine_inputs_(static_cast<std::size_t>(placement.size())),
        partials_(static_cast<std::size_t>(placement.machines())),
        sums_(placement.machines() > 1 ? static_cast<std::size_t>(placement.machines()) * block_bytes : 0) {
    factors_.reserve(static_cast<std::size_t>(placement.size()));
  }

  /// Returns whether machines are combined, instead of ranks one by one.
  [[nodiscard]] bool is_by_machine(const operation& call) const {
    return call.order == reduction_order::tree && placement_.machines() > 1 &&
           !detail::has_wider_accumulator(call.element);
  }

  /// Reduces `count` elements. `inputs` and `factors` have one entry for each rank; `factors` only for a premultiplied
  /// sum.
  void run(const operation& call, std::span<const std::byte* const> inputs, std::span<std::byte* const> outs,
           std::size_t count, std::span<const double> factors) {
    if (!is_by_machine(call)) {
      detail::run_kernel(call.kernel, call.op, inputs, outs, count, factors);
      return;
    }
    const std::size_t width = size_of(call.element);
    outs_.resize(outs.size());
    for (std::size_t begin = 0; begin < count; begin += block_bytes / width) {
      const std::size_t size = std::min(block_bytes / width, count - begin);
      for (int machine = 0; machine < placement_.machines(); ++machine) {
        std::byte* const sum = sums_.data() + static_cast<std::size_t>(machine) * block_bytes;
        combine_machine(call, machine, inputs, begin * width, sum, size, factors);
        partials_[static_cast<std::size_t>(machine)] = sum;
      }
      for (std::size_t index = 0; index < outs.size(); ++index) {
        outs_[index] = outs[index] + begin * width;
      }
      combine_partials(call, partials_, outs_, size);
    }
  }

  /// Combines elements of a machine's ranks. `inputs` has an entry for each rank of the group; the elements begin
  /// `offset` bytes behind it.
  void combine_machine(const operation& call, int machine, std::span<const std::byte* const> inputs, std::size_t offset,
                       std::byte* out, std::size_t count, std::span<const double> factors) {
    machine_inputs_.clear();
    factors_.clear();
    for (const int rank : placement_.ranks_of(machine)) {
      const auto index = static_cast<std::size_t>(rank);
      machine_inputs_.push_back(inputs[index] + offset);
      if (!factors.empty()) {
        factors_.push_back(factors[index]);
      }
    }
    const reduce_kind op = call.op == reduce_kind::average ? reduce_kind::sum : call.op;
    detail::run_kernel(call.kernel, op, machine_inputs_, out, count, factors_);
  }

  /// Combines the results of all machines.
  void combine_partials(const operation& call, std::span<const std::byte* const> partials,
                        std::span<std::byte* const> outs, std::size_t count) const {
    const reduce_kind op = call.op == reduce_kind::premultiplied_sum ? reduce_kind::sum : call.op;
    detail::run_kernel(call.kernel, op, partials, outs, count, {}, static_cast<std::size_t>(placement_.size()));
  }

 private:
  static constexpr std::size_t block_bytes = 4096;

  const group_placement& placement_;
  detail::plain_list<const std::byte*> machine_inputs_;  // scratch
  detail::plain_list<double> factors_;                   // scratch
  detail::plain_list<const std::byte*> partials_;        // scratch: by machine
  detail::plain_list<std::byte*> outs_;                  // scratch
  std::vector<std::byte> sums_;                          // scratch: a block for each machine
};

}  // namespace hfcomm::engines
