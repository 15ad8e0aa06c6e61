// SPDX-License-Identifier: MIT
#pragma once

#include <cstdlib>
#include <string_view>

#include <hfcomm/core/config.hpp>
#include <hfcomm/engine/reduction/vector_unit.hpp>

// Functions that are compiled for instructions which the program's own target need not have. They call templates that
// are always inlined, so that the compiler vectorises those for each of them: no intrinsics, nothing written twice.
#if defined(__x86_64__)
#define HFCOMM_AVX2 [[gnu::target("avx2,f16c")]]
#define HFCOMM_AVX512 [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]]
#endif

namespace hfcomm::detail {

HFCOMM_INLINE bool has(vector_unit unit) noexcept {
#if defined(__x86_64__)
  switch (unit) {
    case vector_unit::plain: return true;
    case vector_unit::avx2: return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("f16c") != 0;
    case vector_unit::avx512:
      return has(vector_unit::avx2) && __builtin_cpu_supports("avx512f") != 0 &&
             __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
             __builtin_cpu_supports("avx512vl") != 0;
  }
  return false;
#else
  return unit == vector_unit::plain;
#endif
}

HFCOMM_INLINE vector_unit best_vector_unit() noexcept {
  static const vector_unit best = [] {
    const char* text = std::getenv("HFCOMM_VECTOR_UNIT");
    const std::string_view limit = text != nullptr ? text : "";
    if (limit == "plain") {
      return vector_unit::plain;
    }
    if (limit != "avx2" && has(vector_unit::avx512)) {
      return vector_unit::avx512;
    }
    return has(vector_unit::avx2) ? vector_unit::avx2 : vector_unit::plain;
  }();
  return best;
}

}  // namespace hfcomm::detail
