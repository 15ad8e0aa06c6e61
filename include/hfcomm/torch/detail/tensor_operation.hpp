// SPDX-License-Identifier: MIT
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <hfcomm/call/argument_checks.hpp>
#include <hfcomm/call/async.hpp>
#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/reduce_op.hpp>
#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/device/detail/device_call.hpp>
#include <hfcomm/device/device_work.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/engine/reduction/kernel_for.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/group/work.hpp>
#include <hfcomm/torch/detail/streams-inl.hpp>
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

/// Describes why two tensors do not fit each other; empty: they do.
inline std::string difference_problem(const at::Tensor& in, const at::Tensor& out) {
  if (in.device() != out.device()) {
    return hfcomm::detail::concat({"the output is on the device ", out.device().str(), ", the input on ",
                                   in.device().str(),
                                   "; all tensors of a call must be in host memory, or on one device"});
  }
  if (in.scalar_type() != out.scalar_type()) {
    return hfcomm::detail::concat({"the output is of type ", std::string(out.dtype().name()), ", the input of type ",
                                   std::string(in.dtype().name())});
  }
  return {};
}

/// Describes why the tensors of a call are unusable; empty: they are not. Undefined ones are ignored but for `main`.
inline std::string arguments_problem(const tensor_arguments& of, const at::Tensor& main) {
  if (!main.defined()) {
    return memory_problem(main);
  }
  for (const at::Tensor* one : {&of.in, &of.out}) {
    if (one->defined()) {
      if (std::string problem = memory_problem(*one); !problem.empty()) {
        return problem;
      }
    }
  }
  return of.in.defined() && of.out.defined() ? difference_problem(of.in, of.out) : "";
}

/// Returns whether a rank writes its output. What a broadcast's root sends in place is not written.
inline bool writes_output(const tensor_arguments& of, bool has_sender) {
  return of.out.defined() && !(has_sender && of.in.is_same(of.out));
}

inline void set_reduction(tensor_operation& operation, const at::Tensor& main, reduce_op op) {
  auto& call = operation.call;
  const bool is_bool = main.scalar_type() == at::kBool;
  if (is_bool && !hfcomm::detail::valid(op.kind(), element_type::uint8)) {
    operation.problem = hfcomm::detail::undefined_reduction(op.kind(), "bool");
    return;
  }
  call.element = is_bool ? element_type::uint8 : call.element;
  hfcomm::detail::set_reduction(call, is_bool ? reduction_of_bools(op) : op);
  if (operation.device) {
    if (!hfcomm::detail::is_reduced_on_devices(call.element)) {
      operation.problem = hfcomm::detail::concat(
          {"tensors of type ", std::string(main.dtype().name()),
           " cannot be reduced on a device: NCCL reduces no 16-bit integers and no complex numbers"});
    }
    return;
  }
  call.kernel = hfcomm::detail::kernel_for(call.element);
  if (call.element == element_type::none) {
    operation.problem =
        hfcomm::detail::concat({"tensors of type ", std::string(main.dtype().name()), " cannot be reduced"});
  }
}

/// Returns the elements of one row.
inline std::size_t row_elements(const at::Tensor& tensor) {
  std::size_t count = 1;
  for (std::int64_t dimension = 1; dimension < tensor.dim(); ++dimension) {
    count *= static_cast<std::size_t>(tensor.size(dimension));
  }
  return count;
}

/// Returns the elements of these numbers of rows. One that is impossibly large stays so.
inline std::vector<std::size_t> elements_of_rows(std::span<const std::size_t> rows, std::size_t row) {
  std::vector<std::size_t> counts;
  counts.reserve(rows.size());
  for (const std::size_t number : rows) {
    std::size_t count = 0;
    counts.push_back(__builtin_mul_overflow(number, row, &count) ? std::numeric_limits<std::size_t>::max() : count);
  }
  return counts;
}

inline void set_counts(tensor_operation& operation, const tensor_arguments& of, const at::Tensor& main) {
  operation.has_counts = true;
  operation.call.content = operation.call.reduces ? operation.call.content : engines::payload::uneven;
  for (const at::Tensor* one : {&of.in, &of.out}) {
    if (one->defined() && one->dim() == 0) {
      operation.problem = "a tensor without dimensions has no rows, in which the counts are";
      break;
    }
    if (one->defined() && row_elements(*one) != row_elements(main)) {
      operation.problem = hfcomm::detail::concat(
          {"a row of the input has ", row_elements(of.in), " elements, one of the output ", row_elements(of.out)});
    }
  }
  operation.counts = elements_of_rows(*of.rows, row_elements(main));
  operation.out_counts = elements_of_rows(of.out_rows, row_elements(main));
}

inline void set_device(tensor_operation& operation, at::Device device) {
  operation.device = device;
  if (const auto stream = stream_on(device)) {
    operation.stream = *stream;
  } else {
    operation.problem = unknown_stream_text(device);
  }
}

/// Makes the operation of a call: finds out where its tensors are, and copies those in host memory that are not
/// contiguous.
[[nodiscard]] inline tensor_operation prepare(const tensor_collective& what, tensor_arguments of,
                                              const process_group& group, std::source_location where) {
  const bool is_root = group.rank() == of.root;
  const bool has_sender = what.pattern == engines::movement::from_root;
  of.in = has_sender && !is_root ? at::Tensor() : of.in;
  of.out = what.pattern == engines::movement::to_root && !is_root ? at::Tensor() : of.out;
  const at::Tensor main = has_sender ? of.out : of.in;
  auto name = is_on_device(main) ? what.device_name : what.name;
  const bool is_written = writes_output(of, has_sender);
  std::string problem = arguments_problem(of, main);
  problem = problem.empty() && is_written ? writing_problem(of.out) : problem;
  if (!problem.empty()) {
    const tensor_memory nothing{at::Tensor()};
    tensor_operation refused{tensor_call(name, what.pattern, main, of.root, where), nothing, nothing, false};
    refused.device = is_on_device(main) ? std::optional(main.device()) : std::nullopt;
    refused.problem = std::move(problem);
    return refused;
  }
  const tensor_memory out(of.out);
  tensor_operation operation{tensor_call(name, what.pattern, main, of.root, where),
                             of.in.is_same(of.out) ? out : tensor_memory(of.in), out, is_written};
  if (what.has_part_for_each && !of.rows && !is_on_device(main)) {
    operation.call.bytes /= static_cast<std::uint64_t>(group.size());
  }
  if (is_on_device(main)) {
    set_device(operation, main.device());
  }
  if (of.op) {
    set_reduction(operation, main, *of.op);
  }
  if (of.rows) {
    set_counts(operation, of, main);
  }
  return operation;
}

/// Throws usage_error with the operation's problem, and tells the other ranks in the plane that it belongs to.
[[noreturn]] inline void refuse(tensor_operation& operation, const process_group& group) {
  if (operation.device) {
    const current_device_scope current(*operation.device);
    hfcomm::detail::running_device_call running(group, operation.call);
    running.refuse(operation.problem);
  }
  hfcomm::detail::running_call running(group, operation.call);
  running.refuse(operation.problem);
}

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
