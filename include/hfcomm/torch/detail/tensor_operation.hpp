// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <hfcomm/call/argument_checks.hpp>
#include <hfcomm/call/async.hpp>
#include <hfcomm/core/reduce_op.hpp>
#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/device/detail/device_call.hpp>
#include <hfcomm/device/device_work.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/group/work.hpp>
#include <hfcomm/torch/detail/streams.hpp>
#include <hfcomm/torch/detail/tensor_memory.hpp>

/// The steps of a collective on tensors, which are the same for all of them.
namespace hfcomm::torch::detail {

/// The names of a collective on the host plane and on the device plane, and how bytes move.
struct tensor_collective {
  engines::operation_name name;
  engines::operation_name device_name;
  engines::movement pattern;
  bool has_part_for_each = false;  ///< Whether the input holds an equal part for each rank, unless there are counts.
};

/// The arguments of a call. A tensor may be undefined where this rank's one is ignored.
struct tensor_arguments {
  at::Tensor in;
  at::Tensor out;  ///< `in` itself in place.
  int root = -1;
  std::optional<reduce_op> op{};
  /// The rows of each rank's part; of an all-to-all, those of the input and of the output.
  std::optional<std::span<const std::size_t>> rows{};
  std::span<const std::size_t> out_rows{};
};

/// The elements of a call. The counts are in elements, too.
struct tensor_buffers {
  hfcomm::detail::const_elements in;
  hfcomm::detail::elements out;
  bool has_counts;
  std::span<const std::size_t> counts;
  std::span<const std::size_t> out_counts;
};

/// A collective that is about to run, with all that it needs: it keeps the tensors.
struct tensor_operation {
  engines::operation call;
  tensor_memory in;
  tensor_memory out;
  bool is_written;                     ///< Whether this rank writes `out`. A broadcast's root does not.
  std::string problem{};               ///< Why the arguments are unusable; empty: they are not.
  std::optional<at::Device> device{};  ///< The CUDA device that it runs on.
  stream_ref stream = stream_ref::legacy_default();
  bool has_counts = false;
  std::vector<std::size_t> counts{};
  std::vector<std::size_t> out_counts{};

  /// Ends the operation on this rank.
  void finish_writing() const {
    if (is_written) {
      out.finish_writing();
    }
  }
  [[nodiscard]] tensor_buffers buffers() const {
    return {in.elements(), out.elements(), has_counts, counts, out_counts};
  }
};

/// Makes the operation of a call: finds out where its tensors are, and copies those in host memory that are not
/// contiguous.
[[nodiscard]] tensor_operation prepare(const tensor_collective& what, tensor_arguments of, const process_group& group,
                                       std::source_location where);

/// Throws usage_error with the operation's problem, and tells the other ranks in the plane that it belongs to.
[[noreturn]] void refuse(tensor_operation& operation, const process_group& group);

/// Performs a collective. In host memory it waits; on a device it runs on the stream. `Collective` is a class of
/// tensor_collectives.hpp.
template <class Collective>
void perform(tensor_arguments of, const process_group& group, std::source_location where) {
  auto operation = prepare(Collective::names, std::move(of), group, where);
  if (!operation.problem.empty()) {
    refuse(operation, group);
  }
  if (operation.device) {
    const current_device_scope current(*operation.device);
    Collective::on_device(operation.call, operation.buffers(), hfcomm::detail::on_stream{operation.stream}, group);
  } else {
    Collective::on_host(engines::operation(operation.call), operation.buffers(), group);
  }
  operation.finish_writing();
}

/// Starts a collective on a stream of the group's own.
template <class Collective>
device_work start_on_device(tensor_operation& operation, const process_group& group) {
  if (!operation.problem.empty()) {
    refuse(operation, group);
  }
  const current_device_scope current(*operation.device);
  return Collective::on_device(operation.call, operation.buffers(), hfcomm::detail::on_own_stream{operation.stream},
                               group);
}

/// Starts a collective. The work's value is `result()`, once the operation is done.
template <class Collective, class Result>
work<std::invoke_result_t<const Result&>> begin(tensor_arguments of, const process_group& group,
                                                std::source_location where, const Result& result) {
  auto operation = prepare(Collective::names, std::move(of), group, where);
  const auto name = operation.call.name;
  if (operation.device) {
    const auto wait = [result](device_work started, tensor_operation&& mine, const process_group& /*group*/,
                               std::source_location /*where*/) {
      started.synchronize();
      mine.finish_writing();
      return result();
    };
    auto started = start_on_device<Collective>(operation, group);
    return hfcomm::detail::start(name, wait, group, where, std::move(started), std::move(operation));
  }
  hfcomm::detail::check_before_start(operation.call, group, [&](hfcomm::detail::checked_call& running) {
    running.require(operation.problem.empty(), [&] { return operation.problem; });
    Collective::check(running, operation.buffers());
  });
  const auto run = [result](tensor_operation&& mine, const process_group& its_group, std::source_location /*where*/) {
    Collective::on_host(engines::operation(mine.call), mine.buffers(), its_group);
    mine.finish_writing();
    return result();
  };
  return hfcomm::detail::start(name, run, group, where, std::move(operation));
}

template <class Collective>
work<void> begin(tensor_arguments of, const process_group& group, std::source_location where) {
  return begin<Collective>(std::move(of), group, where, [] {});
}

}  // namespace hfcomm::torch::detail
