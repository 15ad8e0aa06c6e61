// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <vector>

/// Parts of a message, each behind its size, a u64.
namespace hfcomm::detail {

/// Appends the space for a part's size. Returns the message's size before that.
std::size_t begin_sized_part(std::vector<std::byte>& message);

/// Writes the size of the part that began at `start` and ends at the message's end.
void end_sized_part(std::vector<std::byte>& message, std::size_t start);

}  // namespace hfcomm::detail
