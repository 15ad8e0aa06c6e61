// SPDX-License-Identifier: MIT
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include <hfcomm/core/config.hpp>

namespace hfcomm::detail {

/// One piece of a text: characters, which must outlive the piece, or a whole number. Only `concat` and `append` read
/// it, so that a place that makes a text stores its pieces and calls one function.
class text_piece {
 public:
  text_piece(const char* text) noexcept : kind_(kind::zero_terminated), zero_terminated_(text) {}
  text_piece(std::string_view text) noexcept : kind_(kind::characters), characters_(text) {}
  text_piece(const std::string& text) noexcept : kind_(kind::characters), characters_(text) {}
  text_piece(char letter) noexcept : kind_(kind::letter), letter_(letter) {}
  text_piece(int number) noexcept : text_piece(static_cast<long long>(number)) {}
  text_piece(long number) noexcept : text_piece(static_cast<long long>(number)) {}
  text_piece(long long number) noexcept : kind_(kind::signed_number), signed_(number) {}
  text_piece(unsigned number) noexcept : text_piece(static_cast<unsigned long long>(number)) {}
  text_piece(unsigned long number) noexcept : text_piece(static_cast<unsigned long long>(number)) {}
  text_piece(unsigned long long number) noexcept : kind_(kind::unsigned_number), unsigned_(number) {}
  text_piece(bool) = delete;

  [[gnu::cold]] void append_to(std::string& text) const;

 private:
  enum class kind { zero_terminated, characters, letter, signed_number, unsigned_number };

  kind kind_;
  union {
    const char* zero_terminated_;  // NOLINT
    std::string_view characters_;  // NOLINT
    char letter_;                  // NOLINT
    long long signed_;             // NOLINT
    unsigned long long unsigned_;  // NOLINT
  };
};

/// Returns the pieces as one text. For texts that are rarely made: errors, warnings, names of files and processes.
[[gnu::cold]] std::string concat(std::initializer_list<text_piece> pieces);

/// Appends the pieces, none of which may be a part of `text`.
[[gnu::cold]] void append(std::string& text, std::initializer_list<text_piece> pieces);

}  // namespace hfcomm::detail
