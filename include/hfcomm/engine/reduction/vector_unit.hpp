// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string_view>

#include <hfcomm/core/config.hpp>

namespace hfcomm::detail {

/// A set of vector instructions. All give the same results, bit for bit.
enum class vector_unit : std::uint8_t {
  plain,   ///< The instructions that the program is compiled for: SSE2 on x86-64, NEON on aarch64.
  avx2,    ///< AVX2 and F16C.
  avx512,  ///< AVX-512 F, BW, DQ, VL.
};

[[nodiscard]] constexpr std::string_view to_string(vector_unit unit) noexcept {
  return unit == vector_unit::avx512 ? "AVX-512" : unit == vector_unit::avx2 ? "AVX2" : "plain";
}

/// Returns whether this machine has it.
[[nodiscard]] bool has(vector_unit unit) noexcept;

/// Returns the widest one that this machine has and that HFCOMM_VECTOR_UNIT (plain, avx2, avx512) does not forbid. It
/// is looked up once.
[[nodiscard]] vector_unit best_vector_unit() noexcept;

}  // namespace hfcomm::detail
