// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>

#include <hfcomm/core/config.hpp>
#include <hfcomm/engine/reduction/vector_unit.hpp>

namespace hfcomm::detail {

/// As memcpy, for bytes that another core has written or will read: the C library takes `rep movs` from a few KiB on,
/// which moves lines between cores up to twice slower than vector loads and stores do.
void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

/// Copies by one vector unit, which the machine has.
void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes, vector_unit unit) noexcept;

/// Copies from one place of this rank's own memory to another, or to the same one (in place). Of much memory the C
/// library's way is the faster one, for no line moves between cores; a little is in the cache from being sent.
void copy_own_bytes(std::byte* to, std::span<const std::byte> from) noexcept;

/// Copies a chunk from `source` to its place on rank `own`.
void copy_received(std::byte* to, std::span<const std::byte> chunk, int source, int own) noexcept;

}  // namespace hfcomm::detail
