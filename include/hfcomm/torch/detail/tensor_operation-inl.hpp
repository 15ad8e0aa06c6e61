// SPDX-License-Identifier: MIT
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/device_span.hpp>
#include <hfcomm/engine/reduction/kernel_for.hpp>
#include <hfcomm/torch/detail/tensor_operation.hpp>

namespace hfcomm::torch::detail {

/// Describes why two tensors do not fit each other; empty: they do.
HFCOMM_INLINE std::string difference_problem(const at::Tensor& in, const at::Tensor& out) {
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
HFCOMM_INLINE std::string arguments_problem(const tensor_arguments& of, const at::Tensor& main) {
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
HFCOMM_INLINE bool writes_output(const tensor_arguments& of, bool has_sender) {
  return of.out.defined() && !(has_sender && of.in.is_same(of.out));
}

HFCOMM_INLINE void set_reduction(tensor_operation& operation, const at::Tensor& main, reduce_op op) {
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
HFCOMM_INLINE std::size_t row_elements(const at::Tensor& tensor) {
  std::size_t count = 1;
  for (std::int64_t dimension = 1; dimension < tensor.dim(); ++dimension) {
    count *= static_cast<std::size_t>(tensor.size(dimension));
  }
  return count;
}

/// Returns the elements of these numbers of rows. One that is impossibly large stays so.
HFCOMM_INLINE std::vector<std::size_t> elements_of_rows(std::span<const std::size_t> rows, std::size_t row) {
  std::vector<std::size_t> counts;
  counts.reserve(rows.size());
  for (const std::size_t number : rows) {
    std::size_t count = 0;
    counts.push_back(__builtin_mul_overflow(number, row, &count) ? std::numeric_limits<std::size_t>::max() : count);
  }
  return counts;
}

HFCOMM_INLINE void set_counts(tensor_operation& operation, const tensor_arguments& of, const at::Tensor& main) {
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

HFCOMM_INLINE void set_device(tensor_operation& operation, at::Device device) {
  operation.device = device;
  if (const auto stream = stream_on(device)) {
    operation.stream = *stream;
  } else {
    operation.problem = unknown_stream_text(device);
  }
}

HFCOMM_INLINE tensor_operation prepare(const tensor_collective& what, tensor_arguments of, const process_group& group,
                                       std::source_location where) {
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

HFCOMM_INLINE void refuse(tensor_operation& operation, const process_group& group) {
  if (operation.device) {
    const current_device_scope current(*operation.device);
    hfcomm::detail::running_device_call running(group, operation.call);
    running.refuse(operation.problem);
  }
  hfcomm::detail::running_call running(group, operation.call);
  running.refuse(operation.problem);
}

}  // namespace hfcomm::torch::detail
