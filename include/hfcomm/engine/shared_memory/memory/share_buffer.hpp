// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/shared_memory/memory/shared_heap.hpp>
#include <hfcomm/engine/shared_memory/memory/shared_ranges.hpp>

namespace hfcomm::engines {

/// Replaces the whole pages of buffers by pages of `heap`, and adds them to `ranges`. Returns what undoes it when it is
/// destroyed, which may outlive the group; null where there is no whole page. `heap` is null where the group has none,
/// because it spans machines or a limit leaves no room: the error tells which by `spans_machines`. Throws engine_error
/// with the reason where one of them cannot be shared, and usage_error in the child of a fork. Then none is.
[[nodiscard]] std::shared_ptr<void> share_buffers(const std::shared_ptr<shared_ranges>& ranges,
                                                  const std::shared_ptr<shared_heap>& heap, bool spans_machines,
                                                  std::span<const std::span<std::byte>> buffers,
                                                  const error_context& context);

}  // namespace hfcomm::engines
