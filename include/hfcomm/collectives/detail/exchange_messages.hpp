// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <hfcomm/engine/host_engine.hpp>

namespace hfcomm::detail {

/// Returns what each rank has given, in rank order; an empty message for a rank of which this one receives nothing.
[[nodiscard]] std::vector<std::vector<std::byte>> exchange_messages(engines::host_engine& engine, const operation& call,
                                                                    std::span<const std::byte> mine);

}  // namespace hfcomm::detail
