// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

namespace hfcomm::rendezvous {

/// Returns 64 random bits from the system. Throws engine_error where it has none.
std::uint64_t random_word();

/// Returns 128 random bits from the system, in hexadecimal.
[[gnu::cold]] std::string random_id();

}  // namespace hfcomm::rendezvous
