// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace hfcomm::rendezvous {

/// Returns 128 random bits from the system, in hexadecimal.
std::string random_id();

}  // namespace hfcomm::rendezvous
