// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/element_type.hpp>
#include <hfcomm/core/reduce_op.hpp>
#include <hfcomm/cuda/nccl_api.hpp>

/// Translation of element types, reductions and results between hfcomm and NCCL.
namespace hfcomm::engines {

/// Returns NCCL's type, or nullopt for types that NCCL cannot reduce: 16-bit integers, and bytes that are only moved.
[[nodiscard]] constexpr std::optional<ncclDataType_t> nccl_type(element_type type) noexcept {
  switch (type) {
    case element_type::int8: return ncclInt8;
    case element_type::uint8: return ncclUint8;
    case element_type::int32: return ncclInt32;
    case element_type::uint32: return ncclUint32;
    case element_type::int64: return ncclInt64;
    case element_type::uint64: return ncclUint64;
    case element_type::float16: return ncclFloat16;
    case element_type::bfloat16: return ncclBfloat16;
    case element_type::float32: return ncclFloat32;
    case element_type::float64: return ncclFloat64;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 0)
    case element_type::float8_e4m3: return ncclFloat8e4m3;
    case element_type::float8_e5m2: return ncclFloat8e5m2;
#endif
    default: return std::nullopt;
  }
}

/// Returns NCCL's operator. Returns nullopt for bitwise and logical reductions, which NCCL lacks, and for premultiplied
/// sums, for which an operator has to be made.
[[nodiscard]] constexpr std::optional<ncclRedOp_t> nccl_op(reduce_kind op) noexcept {
  switch (op) {
    case reduce_kind::sum: return ncclSum;
    case reduce_kind::product: return ncclProd;
    case reduce_kind::min: return ncclMin;
    case reduce_kind::max: return ncclMax;
    case reduce_kind::average: return ncclAvg;
    default: return std::nullopt;
  }
}

/// Returns `unhandled system error (NCCL error 2: <NCCL's last error text>)`. The text is copied at once, because the
/// process has only one.
[[nodiscard]] inline std::string nccl_text(const cuda::nccl_api& api, ncclResult_t result) {
  std::string text = api.ncclGetErrorString(result);
  detail::append(text, {" (NCCL error ", static_cast<int>(result)});
  if (const char* last = api.ncclGetLastError(nullptr); last != nullptr && *last != '\0') {
    detail::append(text, {": ", last});
  }
  while (!text.empty() && text.back() == '\n') {
    text.pop_back();
  }
  return detail::concat({text, ')'});
}

}  // namespace hfcomm::engines
