// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>

namespace hfcomm {

/// The line of the program that calls, which errors name.
using call_site = std::source_location;

}  // namespace hfcomm
