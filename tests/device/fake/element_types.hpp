// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include <nccl.h>

#include <hfcomm/core/float16.hpp>
#include <hfcomm/core/float8.hpp>

namespace fake_cuda::detail {

template <class T>
struct type_tag {
  using type = T;
};

/// Calls `body(type_tag<T>)` with the C++ type for NCCL's.
template <class Body>
auto with_type(ncclDataType_t type, Body body) {
  switch (type) {
    case ncclInt8: return body(type_tag<std::int8_t>{});
    case ncclUint8: return body(type_tag<std::uint8_t>{});
    case ncclInt32: return body(type_tag<std::int32_t>{});
    case ncclUint32: return body(type_tag<std::uint32_t>{});
    case ncclInt64: return body(type_tag<std::int64_t>{});
    case ncclUint64: return body(type_tag<std::uint64_t>{});
    case ncclFloat16: return body(type_tag<hfcomm::float16>{});
    case ncclFloat32: return body(type_tag<float>{});
    case ncclFloat64: return body(type_tag<double>{});
    case ncclBfloat16: return body(type_tag<hfcomm::bfloat16>{});
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 0)
    case ncclFloat8e4m3: return body(type_tag<hfcomm::float8_e4m3>{});
    case ncclFloat8e5m2: return body(type_tag<hfcomm::float8_e5m2>{});
#endif
    default: throw std::logic_error("an element type that NCCL does not have");
  }
}

inline bool is_type(ncclDataType_t type) { return type >= 0 && type < ncclNumTypes; }

inline std::size_t size_of(ncclDataType_t type) {
  return with_type(type, [](auto tag) { return sizeof(typename decltype(tag)::type); });
}

}  // namespace fake_cuda::detail
