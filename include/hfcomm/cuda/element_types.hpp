// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <hfcomm/core/element_type.hpp>

/// CUDA's narrow floating-point types as elements. They have the same bits as hfcomm's types, and are accepted wherever
/// those are, on the host and on devices.
namespace hfcomm {

template <>
inline constexpr element_type enable_element_type<__half> = element_type::float16;
template <>
inline constexpr element_type enable_element_type<__nv_bfloat16> = element_type::bfloat16;
template <>
inline constexpr element_type enable_element_type<__nv_fp8_e4m3> = element_type::float8_e4m3;
template <>
inline constexpr element_type enable_element_type<__nv_fp8_e5m2> = element_type::float8_e5m2;

}  // namespace hfcomm
