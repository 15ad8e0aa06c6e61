// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>

#include <hfcomm/core/config.hpp>
#include <hfcomm/engine/reduction/vector_unit.hpp>

namespace hfcomm::detail {

/// Copies bytes that another core has written or will read. For more than a few KiB the C library's memcpy uses
/// `rep movs`, which moves cache lines between cores at down to half the speed of vector loads and stores.
void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

/// Copies with one vector unit. The machine must have it.
void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes, vector_unit unit) noexcept;

/// Whether this processor has stores that go past its caches, and an instruction that copies.
#if defined(__x86_64__)
inline constexpr bool has_other_copies = true;
#else
inline constexpr bool has_other_copies = false;
#endif

/// Copies past this core's caches, without reading the lines that it writes. Where another core has those lines in its
/// cache, ordinary stores wait for each of them: they can be ten times slower. The reader then gets the bytes from a
/// cache that cores share, or from memory. It is `copy_bytes` where the processor has no such stores.
void copy_streamed(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

/// Copies by the instruction `rep movs`. It takes over whole lines that another core has, without waiting for what they
/// hold, but needs some time to begin. It is `copy_bytes` where the processor has no such instruction.
inline void copy_by_instruction(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
#if defined(__x86_64__)
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
#else
  copy_bytes(to, from, bytes);
#endif
}

/// Copies within this rank's own memory; `to` may be `from` itself (in place). Many bytes are left to memcpy, which is
/// faster where no cache line moves between cores. A few are in this core's cache already, because they were just sent.
/// Up to 1 MiB also go without memcpy if `to` and `from` have different offsets in their cache lines, because its `rep
/// movs` is slow then. Two buffers of equal length from one `malloc` often have.
void copy_own_bytes(std::byte* to, std::span<const std::byte> from) noexcept;

/// Copies a chunk from `source` to its place on rank `own`.
void copy_received(std::byte* to, std::span<const std::byte> chunk, int source, int own) noexcept;

}  // namespace hfcomm::detail
