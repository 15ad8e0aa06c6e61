// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>

namespace hfcomm::rendezvous {

/// Replaces pages, at their addresses and with their content, by those of a shared mapping that begin at `shared`. It
/// replaces all at once: a thread that reads them meanwhile finds them as they are. What a thread writes meanwhile may
/// be lost. `pages` begins and ends with a page. Returns 0, or an errno where everything is as before.
[[nodiscard]] int replace_by_shared(std::span<std::byte> pages, std::byte* shared) noexcept;

/// Replaces pages in the same way by new private ones.
[[nodiscard]] int replace_by_private(std::span<std::byte> pages) noexcept;

}  // namespace hfcomm::rendezvous
