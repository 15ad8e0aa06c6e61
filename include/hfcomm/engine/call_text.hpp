// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <hfcomm/engine/operation.hpp>

/// Parts of error texts that describe a call.
namespace hfcomm::engines {

/// Returns a short text that is read back as the same number, in this locale.
[[gnu::cold]] std::string format_number(double number);

/// Returns `3 x float32`, or `12 bytes` of an object.
[[gnu::cold]] std::string elements_text(const operation& call, std::uint64_t bytes);

/// Returns the name of an operation in an error's prefix: `all_gather<int>`.
std::string call_name(const operation& call);

/// Returns `rank 3`, or `ranks 1, 2 and 5`.
[[gnu::cold]] std::string list_ranks(std::span<const int> ranks);

/// Returns `root 5 is not a rank of this group of 3`, where `what` is "root".
[[gnu::cold]] std::string no_such_rank(std::string_view what, int rank, int size);

/// Returns `350 ms`, `2.5 s` or `10 min`.
[[gnu::cold]] std::string format_duration(std::chrono::nanoseconds duration);

}  // namespace hfcomm::engines
