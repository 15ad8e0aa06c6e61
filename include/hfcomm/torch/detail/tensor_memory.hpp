// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/Tensor.h>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>

#include <hfcomm/call/argument_checks.hpp>
#include <hfcomm/core/float16.hpp>
#include <hfcomm/core/reduce_op.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/group/process_group.hpp>

/// Tensors as the arguments of operations on elements in memory.
namespace hfcomm::torch::detail {

/// Returns `use(std::type_identity<T>{})`, where T is the C++ type of a tensor's elements; std::byte where hfcomm has
/// none.
template <class Use>
auto with_type(at::ScalarType type, Use use) {
  switch (type) {
    case at::kBool: return use(std::type_identity<bool>{});
    case at::kByte: return use(std::type_identity<std::uint8_t>{});
    case at::kChar: return use(std::type_identity<std::int8_t>{});
    case at::kShort: return use(std::type_identity<std::int16_t>{});
    case at::kInt: return use(std::type_identity<std::int32_t>{});
    case at::kLong: return use(std::type_identity<std::int64_t>{});
    case at::kHalf: return use(std::type_identity<float16>{});
    case at::kBFloat16: return use(std::type_identity<bfloat16>{});
    case at::kFloat: return use(std::type_identity<float>{});
    case at::kDouble: return use(std::type_identity<double>{});
    case at::kComplexFloat: return use(std::type_identity<std::complex<float>>{});
    case at::kComplexDouble: return use(std::type_identity<std::complex<double>>{});
    default: return use(std::type_identity<std::byte>{});
  }
}

/// Describes why a tensor has no elements in host memory; empty: it has.
[[nodiscard]] std::string memory_problem(const at::Tensor& tensor);

/// The elements of a tensor without a problem, row by row: its own memory, or a copy.
class tensor_memory {
 public:
  explicit tensor_memory(const at::Tensor& tensor);

  [[nodiscard]] hfcomm::detail::elements elements() const;
  /// Writes the elements into the tensor, if they are a copy.
  void write_back() const;

 private:
  at::Tensor tensor_;
  at::Tensor contiguous_;
};

/// Returns the operation on a tensor's elements. That of an unusable tensor can only be refused.
[[nodiscard]] engines::operation tensor_call(engines::operation_name name, engines::movement pattern,
                                             const at::Tensor& tensor, int root, std::source_location where);
/// Returns the reduction of a tensor's elements.
[[nodiscard]] engines::operation tensor_reduction(engines::operation_name name, engines::movement pattern,
                                                  const at::Tensor& tensor, int root, reduce_op op,
                                                  std::source_location where);

/// Throws usage_error unless all tensors have elements of one type in host memory, and can be reduced if that is asked.
/// Tells the other ranks.
void require_tensors(engines::operation& call, std::initializer_list<const at::Tensor*> tensors,
                     const process_group& group);

}  // namespace hfcomm::torch::detail
