// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>

namespace hfcomm::detail {

[[gnu::noinline]] HFCOMM_INLINE void text_piece::append_to(std::string& text) const {
  switch (kind_) {
    case kind::zero_terminated: text += zero_terminated_; break;
    case kind::characters: text += characters_; break;
    case kind::letter: text += letter_; break;
    case kind::signed_number: text += std::to_string(signed_); break;
    case kind::unsigned_number: text += std::to_string(unsigned_); break;
  }
}

[[gnu::noinline]] HFCOMM_INLINE void append(std::string& text, std::initializer_list<text_piece> pieces) {
  for (const text_piece& piece : pieces) {
    piece.append_to(text);
  }
}

[[gnu::noinline]] HFCOMM_INLINE std::string concat(std::initializer_list<text_piece> pieces) {
  std::string text;
  append(text, pieces);
  return text;
}

}  // namespace hfcomm::detail
