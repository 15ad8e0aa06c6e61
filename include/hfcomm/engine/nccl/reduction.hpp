// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <string>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/float16.hpp>
#include <hfcomm/core/float8.hpp>
#include <hfcomm/cuda/nccl_api.hpp>
#include <hfcomm/engine/nccl/nccl_translation.hpp>
#include <hfcomm/engine/operation.hpp>

namespace hfcomm::engines {

/// NCCL's type and operator for a reduction. The operator of a premultiplied sum is made for the call, and lives until
/// the call has returned, when NCCL has copied it.
class nccl_reduction {
 public:
  nccl_reduction(const cuda::nccl_api& api, const operation& call, ncclComm_t comm) : api_(api), comm_(comm) {
    const auto type = nccl_type(call.element);
    const auto op = nccl_op(call.op);
    if (!type) [[unlikely]] {
      is_supported_ = false;
      return;
    }
    type_ = *type;
    if (op) [[likely]] {
      op_ = *op;
    } else if (call.op == reduce_kind::premultiplied_sum) {
      auto factor = bytes_of_factor(call.element, call.factor);
      result_ = api.ncclRedOpCreatePreMulSum(&op_, factor.data(), type_, ncclScalarHostImmediate, comm);
      owns_op_ = result_ == ncclSuccess;
    } else {
      is_supported_ = false;
    }
  }
  nccl_reduction(const nccl_reduction&) = delete;
  nccl_reduction& operator=(const nccl_reduction&) = delete;
  ~nccl_reduction() {
    if (owns_op_) {
      (void)api_.ncclRedOpDestroy(op_, comm_);
    }
  }

  /// Returns false where NCCL has no such reduction.
  [[nodiscard]] bool is_supported() const noexcept { return is_supported_; }
  /// Describes why NCCL has no such reduction.
  [[nodiscard]] static std::string problem(const operation& call) {
    return nccl_type(call.element)
               ? detail::concat({"NCCL has no ", to_string(call.op)})
               : detail::concat({"NCCL does not reduce elements of type ", to_string(call.element)});
  }
  /// Returns the result of making the operator.
  [[nodiscard]] ncclResult_t result() const noexcept { return result_; }
  [[nodiscard]] ncclDataType_t type() const noexcept { return type_; }
  [[nodiscard]] ncclRedOp_t op() const noexcept { return op_; }

 private:
  static std::array<std::byte, 8> bytes_of_factor(element_type type, double factor) {
    std::array<std::byte, 8> bytes{};
    const auto put = [&](auto value) { std::memcpy(bytes.data(), &value, sizeof(value)); };
    const auto narrow = static_cast<float>(factor);
    switch (type) {
      case element_type::float16: put(float16(narrow)); break;
      case element_type::bfloat16: put(bfloat16(narrow)); break;
      case element_type::float8_e4m3: put(float8_e4m3(narrow)); break;
      case element_type::float8_e5m2: put(float8_e5m2(narrow)); break;
      case element_type::float32: put(narrow); break;
      default: put(factor); break;
    }
    return bytes;
  }

  const cuda::nccl_api& api_;
  ncclComm_t comm_;
  ncclDataType_t type_ = ncclUint8;
  ncclRedOp_t op_ = ncclSum;
  ncclResult_t result_ = ncclSuccess;
  bool owns_op_ = false;
  bool is_supported_ = true;
};

}  // namespace hfcomm::engines
