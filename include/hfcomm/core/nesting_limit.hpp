// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstddef>

#include <hfcomm/core/config.hpp>

namespace hfcomm::detail {

/// The maximum nesting depth of objects of the user's classes, in encoding, too: init_options::max_depth. Only such a
/// class can contain itself, so this bounds the stack that decoding needs.
HFCOMM_PROCESS_STATE inline std::atomic<std::size_t>& nesting_limit() noexcept {
  static std::atomic<std::size_t> depth = 256;
  return depth;
}

}  // namespace hfcomm::detail
