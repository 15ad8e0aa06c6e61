// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/core/config.hpp>
#include <hfcomm/engine/reduction/detail/copy_bytes-inl.hpp>
#include <hfcomm/engine/reduction/detail/kernel-inl.hpp>
#include <hfcomm/engine/reduction/detail/vector_unit-inl.hpp>
#include <hfcomm/engine/reduction/kernel_for.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE reduction_kernel kernel_for(element_type type) noexcept {
  switch (type) {
    case element_type::none: return nullptr;
    case element_type::int8: return &reduce_elements<element_type::int8>;
    case element_type::int16: return &reduce_elements<element_type::int16>;
    case element_type::int32: return &reduce_elements<element_type::int32>;
    case element_type::int64: return &reduce_elements<element_type::int64>;
    case element_type::uint8: return &reduce_elements<element_type::uint8>;
    case element_type::uint16: return &reduce_elements<element_type::uint16>;
    case element_type::uint32: return &reduce_elements<element_type::uint32>;
    case element_type::uint64: return &reduce_elements<element_type::uint64>;
    case element_type::float16: return &reduce_elements<element_type::float16>;
    case element_type::bfloat16: return &reduce_elements<element_type::bfloat16>;
    case element_type::float32: return &reduce_elements<element_type::float32>;
    case element_type::float64: return &reduce_elements<element_type::float64>;
    case element_type::float8_e4m3: return &reduce_elements<element_type::float8_e4m3>;
    case element_type::float8_e5m2: return &reduce_elements<element_type::float8_e5m2>;
    case element_type::complex64: return &reduce_elements<element_type::complex64>;
    case element_type::complex128: return &reduce_elements<element_type::complex128>;
  }
  return nullptr;
}

}  // namespace hfcomm::detail
