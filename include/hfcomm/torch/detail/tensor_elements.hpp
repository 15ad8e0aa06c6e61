// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/MemoryOverlap.h>
#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>

#include <hfcomm/call/argument_checks.hpp>
#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/core/float16.hpp>
#include <hfcomm/core/float8.hpp>
#include <hfcomm/core/hash.hpp>
#include <hfcomm/core/reduce_op.hpp>
#include <hfcomm/engine/operation.hpp>

/// The elements of tensors, for the collectives on tensors and for the backend of torch.distributed.
namespace hfcomm::torch::detail {

/// Does what `with_type` does for types that only some versions of PyTorch have, by their names.
template <class Use>
auto with_later_type(std::string_view name, Use use) {
  if (name == "UInt16") {
    return use(std::type_identity<std::uint16_t>{});
  }
  if (name == "UInt32") {
    return use(std::type_identity<std::uint32_t>{});
  }
  if (name == "UInt64") {
    return use(std::type_identity<std::uint64_t>{});
  }
  if (name == "Float8_e4m3fn") {
    return use(std::type_identity<float8_e4m3>{});
  }
  if (name == "Float8_e5m2") {
    return use(std::type_identity<float8_e5m2>{});
  }
  return use(std::type_identity<std::byte>{});
}

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
    default: return with_later_type(c10::toString(type), use);
  }
}

/// Returns the operation `name` on elements of a tensor's type; `bytes` is what this rank contributes.
inline engines::operation typed_call(engines::operation_name name, engines::movement pattern, at::ScalarType type,
                                     std::size_t bytes, int root, std::source_location where) {
  auto call = with_type(type, [&]<class T>(std::type_identity<T> /*type*/) {
    return hfcomm::detail::buffer_call<T>(name, pattern, 0, root, where);
  });
  call.bytes = bytes;
  if (call.type_hash == hfcomm::type_hash<std::byte>()) {
    call.type_hash = hfcomm::detail::mix(call.type_hash, static_cast<std::uint64_t>(type));
    call.type_name = c10::toString(type);
  }
  return call;
}

/// Returns the reduction of bools as bytes that are 0 or 1.
inline reduce_op reduction_of_bools(reduce_op op) {
  switch (op.kind()) {
    case reduce_kind::sum:
    case reduce_kind::bit_or: return reduce_op::max;
    case reduce_kind::product:
    case reduce_kind::bit_and: return reduce_op::min;
    default: return op;
  }
}

/// Returns whether a tensor, which is defined, has its elements in memory by strides. Nested ones only say so.
inline bool is_dense(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && !tensor.is_quantized() && !tensor.is_nested();
}

/// Describes why results cannot be written into a dense tensor; empty: they can.
inline std::string writing_problem(const at::Tensor& tensor) {
  return at::has_internal_overlap(tensor) == at::MemOverlap::Yes
             ? "several elements of the tensor share memory, as those of an expanded one do; results cannot be written "
               "into it: give its clone()"
             : "";
}

/// Copies elements without a record of autograd. The thread need not be in the mode in which `to` was made.
inline void assign(const at::Tensor& to, const at::Tensor& from) {
  const at::NoGradGuard no_grad;
  const c10::InferenceMode mode(to.is_inference() || c10::InferenceMode::is_enabled());
  to.copy_(from);
}

/// The elements of a dense tensor, row by row: its own memory where that is contiguous, otherwise a copy. An undefined
/// tensor has none.
class tensor_memory {
 public:
  explicit tensor_memory(const at::Tensor& tensor)
      : tensor_(tensor.defined() ? tensor.detach() : at::Tensor()),
        contiguous_(tensor.defined() ? tensor_.resolve_conj().resolve_neg().contiguous() : at::Tensor()) {}

  [[nodiscard]] const at::Tensor& tensor() const noexcept { return tensor_; }
  [[nodiscard]] hfcomm::detail::elements elements() const {
    if (!contiguous_.defined()) {
      return {};
    }
    return {static_cast<std::byte*>(contiguous_.data_ptr()), static_cast<std::size_t>(contiguous_.numel()),
            static_cast<std::size_t>(contiguous_.itemsize())};
  }
  /// Uses a copy from now on, whatever the tensor's memory is.
  void copy() {
    if (is_own_memory()) {
      contiguous_ = contiguous_.clone();
    }
  }
  /// Writes the elements into the tensor, if they are a copy.
  void write_back() const {
    if (!is_own_memory()) {
      assign(tensor_, contiguous_);
    }
  }
  /// The same, and lets autograd know that the elements have changed: it refuses a backward that needs the old ones.
  void finish_writing() const {
    if (tensor_.defined() && is_own_memory() && !tensor_.is_inference()) {
      tensor_.unsafeGetTensorImpl()->bump_version();
    }
    write_back();
  }

 private:
  [[nodiscard]] bool is_own_memory() const {
    return !contiguous_.defined() || contiguous_.data_ptr() == tensor_.data_ptr();
  }

  at::Tensor tensor_;
  at::Tensor contiguous_;
};

}  // namespace hfcomm::torch::detail
