// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <cstring>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/reduction/copy_bytes.hpp>
#include <hfcomm/engine/reduction/detail/vector_unit-inl.hpp>

namespace hfcomm::detail {

#if defined(__x86_64__)

// The empty assembly between the loads and the stores keeps compilers from making a call of memcpy of the loop.

HFCOMM_AVX2 HFCOMM_INLINE void copy_avx2(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  using vector [[gnu::vector_size(32)]] = unsigned char;
  const std::byte* const last = from + bytes / 128 * 128;
  for (; from != last; from += 128, to += 128) {
    vector a, b, c, d;
    std::memcpy(&a, from, 32);
    std::memcpy(&b, from + 32, 32);
    std::memcpy(&c, from + 64, 32);
    std::memcpy(&d, from + 96, 32);
    asm("" : "+x"(a), "+x"(b), "+x"(c), "+x"(d));
    std::memcpy(to, &a, 32);
    std::memcpy(to + 32, &b, 32);
    std::memcpy(to + 64, &c, 32);
    std::memcpy(to + 96, &d, 32);
  }
  std::memcpy(to, from, bytes % 128);
}

HFCOMM_AVX512 HFCOMM_INLINE void copy_avx512(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  using vector [[gnu::vector_size(64)]] = unsigned char;
  const std::byte* const last = from + bytes / 256 * 256;
  for (; from != last; from += 256, to += 256) {
    vector a, b, c, d;
    std::memcpy(&a, from, 64);
    std::memcpy(&b, from + 64, 64);
    std::memcpy(&c, from + 128, 64);
    std::memcpy(&d, from + 192, 64);
    asm("" : "+v"(a), "+v"(b), "+v"(c), "+v"(d));
    std::memcpy(to, &a, 64);
    std::memcpy(to + 64, &b, 64);
    std::memcpy(to + 128, &c, 64);
    std::memcpy(to + 192, &d, 64);
  }
  std::memcpy(to, from, bytes % 256);
}

#endif

HFCOMM_INLINE void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes,
                              [[maybe_unused]] vector_unit unit) noexcept {
#if defined(__x86_64__)
  switch (unit) {
    case vector_unit::avx512: return copy_avx512(to, from, bytes);
    case vector_unit::avx2: return copy_avx2(to, from, bytes);
    case vector_unit::plain: break;
  }
#endif
  if (bytes != 0) {  // memcpy must not get a null pointer even then
    std::memcpy(to, from, bytes);
  }
}

HFCOMM_INLINE void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  copy_bytes(to, from, bytes, bytes >= 1024 ? best_vector_unit() : vector_unit::plain);
}

HFCOMM_INLINE void copy_streamed(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
#if defined(__x86_64__)
  constexpr std::size_t line = 64;
  const std::size_t head = std::min((line - reinterpret_cast<std::uintptr_t>(to) % line) % line, bytes);
  copy_bytes(to, from, head);
  const std::byte* const last = from + head + (bytes - head) / line * line;
  to += head;
  for (from += head; from != last; from += line, to += line) {
    using vector [[gnu::vector_size(16)]] = unsigned char;
    vector a, b, c, d;
    std::memcpy(&a, from, 16);
    std::memcpy(&b, from + 16, 16);
    std::memcpy(&c, from + 32, 16);
    std::memcpy(&d, from + 48, 16);
    // Not the functions of <emmintrin.h>, which is large.
    asm volatile(
        "movntdq %1, (%0)\n\t"
        "movntdq %2, 16(%0)\n\t"
        "movntdq %3, 32(%0)\n\t"
        "movntdq %4, 48(%0)"
        :
        : "r"(to), "x"(a), "x"(b), "x"(c), "x"(d)
        : "memory");
  }
  asm volatile("sfence" : : : "memory");  // these stores come before those that publish them
  copy_bytes(to, from, (bytes - head) % line);
#else
  copy_bytes(to, from, bytes);
#endif
}

HFCOMM_INLINE void copy_own_bytes(std::byte* to, std::span<const std::byte> from) noexcept {
  constexpr std::size_t little = std::size_t{64} << 10;
  constexpr std::size_t large = std::size_t{1} << 20;
  constexpr std::size_t line = 64;
  if (to == from.data()) {
    return;
  }
  const auto distance = reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from.data());
  if (from.size() <= little || (from.size() <= large && distance % line != 0)) {
    copy_bytes(to, from.data(), from.size());
  } else {
    std::memcpy(to, from.data(), from.size());
  }
}

HFCOMM_INLINE void copy_received(std::byte* to, std::span<const std::byte> chunk, int source, int own) noexcept {
  if (source == own) {
    copy_own_bytes(to, chunk);
  } else {
    copy_bytes(to, chunk.data(), chunk.size());
  }
}

}  // namespace hfcomm::detail
