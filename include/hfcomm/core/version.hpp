// SPDX-License-Identifier: MIT
#pragma once

/// hfcomm's version, as macros for the preprocessor. Meson reads the three numbers from this file's text.
#define HFCOMM_VERSION_MAJOR 0
#define HFCOMM_VERSION_MINOR 1
#define HFCOMM_VERSION_PATCH 0

namespace hfcomm {

/// The version of the layout of shared memory, which must be equal in processes that share memory. It increases
/// whenever a shared layout changes, or the rules by which ranks come to the same choice.
inline constexpr unsigned wire_version = 14;

}  // namespace hfcomm
