// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include <hfcomm/core/float16.hpp>
#include <hfcomm/core/float8.hpp>
#include <hfcomm/cuda/nccl_api.hpp>
#include <hfcomm/engine/nccl/types.hpp>
#include <hfcomm/engine/operation.hpp>

namespace hfcomm::engines {

/// A reduction in NCCL's words. A premultiplied sum is made for it, and lives until the call has been made: NCCL has
/// copied it then.
class nccl_reduction {
 public:
  nccl_reduction(const cuda::nccl_api& api, const operation& call, ncclComm_t comm) : api_(api), comm_(comm) {
    const auto type = nccl_type(call.element);
    const auto op = nccl_op(call.op);
    if (!type) [[unlikely]] {
      known_ = false;
      return;
    }
    type_ = *type;
    if (op) [[likely]] {
      op_ = *op;
    } else if (call.op == reduce_kind::premultiplied_sum) {
      auto factor = scalar(call.element, call.factor);
      made_ = api.ncclRedOpCreatePreMulSum(&op_, factor.data(), type_, ncclScalarHostImmediate, comm);
      owned_ = made_ == ncclSuccess;
    } else {
      known_ = false;
    }
  }
  nccl_reduction(nccl_reduction&& other) noexcept
      : api_(other.api_),
        comm_(other.comm_),
        type_(other.type_),
        op_(other.op_),
        made_(other.made_),
        owned_(std::exchange(other.owned_, false)),
        known_(other.known_) {}
  nccl_reduction& operator=(nccl_reduction&&) = delete;
  ~nccl_reduction() {
    if (owned_) {
      (void)api_.ncclRedOpDestroy(op_, comm_);
    }
  }

  /// False where NCCL has none such.
  [[nodiscard]] bool known() const noexcept { return known_; }
  [[nodiscard]] static std::string problem(const operation& call) {
    return nccl_type(call.element) ? "NCCL has no " + std::string(to_string(call.op))
                                   : "NCCL does not reduce elements of type " + std::string(to_string(call.element));
  }
  /// What NCCL said to making it.
  [[nodiscard]] ncclResult_t made() const noexcept { return made_; }
  [[nodiscard]] ncclDataType_t type() const noexcept { return type_; }
  [[nodiscard]] ncclRedOp_t op() const noexcept { return op_; }

 private:
  static std::array<std::byte, 8> scalar(element_type type, double factor) {
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
  ncclResult_t made_ = ncclSuccess;
  bool owned_ = false;
  bool known_ = true;
};

}  // namespace hfcomm::engines
