// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/collectives/coalesced.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE std::vector<std::string> describe_spans(const std::vector<coalesced_piece>& pieces, std::size_t width,
                                                      std::string_view type) {
  std::vector<std::string> texts;
  texts.reserve(pieces.size());
  for (const auto& piece : pieces) {
    texts.push_back(concat({"a span of ", piece.bytes.size() / width, " x ", type}));
  }
  return texts;
}

}  // namespace hfcomm::detail
