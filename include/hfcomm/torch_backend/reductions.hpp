// SPDX-License-Identifier: MIT
#pragma once

#include <c10/util/Exception.h>
#include <torch/version.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstddef>
#include <source_location>

#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/core/reduce_op.hpp>
#include <hfcomm/engine/reduction/kernel_for.hpp>
#include <hfcomm/torch_backend/tensors.hpp>

/// Reductions of c10d as those of hfcomm.
namespace hfcomm::torch_backend_detail {

/// Returns this rank's factor of a premultiplied sum.
inline double factor_of(const ::c10d::ReduceOp& op) {
  const auto* supplement = dynamic_cast<const ::c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK(supplement != nullptr, "hfcomm: the premultiplied sum has no factor");
#if TORCH_VERSION_MAJOR >= 2
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>() : supplement->double_factor;
#else
  return supplement->tensor_factors.empty() ? supplement->double_factor
                                            : supplement->tensor_factors.front().item<double>();
#endif
}

inline reduce_op reduction_of(const ::c10d::ReduceOp& op) {
  switch (op.op_) {
    case ::c10d::ReduceOp::SUM: return reduce_op::sum;
    case ::c10d::ReduceOp::AVG: return reduce_op::average;
    case ::c10d::ReduceOp::PRODUCT: return reduce_op::product;
    case ::c10d::ReduceOp::MIN: return reduce_op::min;
    case ::c10d::ReduceOp::MAX: return reduce_op::max;
    case ::c10d::ReduceOp::BAND: return reduce_op::bit_and;
    case ::c10d::ReduceOp::BOR: return reduce_op::bit_or;
    case ::c10d::ReduceOp::BXOR: return reduce_op::bit_xor;
    case ::c10d::ReduceOp::PREMUL_SUM: return reduce_op::premultiplied_sum(factor_of(op));
    default: TORCH_CHECK(false, "hfcomm: unknown reduction ", static_cast<int>(op.op_));
  }
}

/// Returns the reduction `name` of elements of the tensor's type. Throws c10::Error where they cannot be reduced.
inline engines::operation reduction_call(engines::operation_name name, engines::movement pattern,
                                         const at::Tensor& tensor, std::size_t bytes, int root,
                                         const ::c10d::ReduceOp& op, std::source_location where) {
  auto call = typed_call(name, pattern, tensor.scalar_type(), bytes, root, where);
  auto reduction = reduction_of(op);
  if (tensor.scalar_type() == at::kBool) {
    call.element = element_type::uint8;
    reduction = torch::detail::reduction_of_bools(reduction);
    TORCH_CHECK(hfcomm::detail::valid(reduction.kind(), call.element),
                "hfcomm: ", hfcomm::detail::undefined_reduction(reduction.kind(), "bool"));
  }
  TORCH_CHECK(call.element != element_type::none, "hfcomm: tensors of type ", tensor.scalar_type(),
              " cannot be reduced");
  hfcomm::detail::set_reduction(call, reduction);
  call.kernel = hfcomm::detail::kernel_for(call.element);
  return call;
}

}  // namespace hfcomm::torch_backend_detail
