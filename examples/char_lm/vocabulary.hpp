// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace char_lm {

/// A character as the model sees it: its index in the vocabulary.
using symbol = std::uint8_t;

/// The distinct bytes of a text in ascending order; a byte's place in that order is its symbol. Any bytes will do,
/// UTF-8 included, since the model predicts bytes.
class vocabulary {
 public:
  /// Throws std::invalid_argument where there is nothing to tell apart: an empty text, or one byte repeated.
  explicit vocabulary(std::string_view text) {
    if (text.empty())
      throw std::invalid_argument("the text is empty: there is nothing to learn from");
    for (const char c : text)
      known_.set(static_cast<unsigned char>(c));
    for (std::size_t byte = 0; byte < known_.size(); ++byte) {
      if (!known_.test(byte))
        continue;
      symbol_of_[byte] = static_cast<symbol>(bytes_.size());
      bytes_.push_back(static_cast<char>(static_cast<unsigned char>(byte)));
    }
    if (bytes_.size() < 2) {
      throw std::invalid_argument("the text has only one distinct byte, " + describe(bytes_[0]) +
                                  ": there is nothing to predict");
    }
  }

  /// The number of symbols, 2 to 256.
  [[nodiscard]] std::size_t size() const noexcept { return bytes_.size(); }
  /// All bytes of the vocabulary, in symbol order.
  [[nodiscard]] const std::string& bytes() const noexcept { return bytes_; }
  [[nodiscard]] bool contains(char c) const noexcept { return known_.test(static_cast<unsigned char>(c)); }

  /// Throws std::invalid_argument, naming the byte, for a byte that the vocabulary's text did not have.
  [[nodiscard]] symbol encode(char c) const {
    if (!contains(c))
      throw std::invalid_argument("byte " + describe(c) + " does not occur in the training text");
    return symbol_of_[static_cast<unsigned char>(c)];
  }
  [[nodiscard]] std::vector<symbol> encode(std::string_view text) const {
    std::vector<symbol> symbols(text.size());
    std::transform(text.begin(), text.end(), symbols.begin(), [this](char c) { return encode(c); });
    return symbols;
  }

  /// Throws std::out_of_range for a symbol that is not below size().
  [[nodiscard]] char decode(symbol s) const { return bytes_.at(s); }
  [[nodiscard]] std::string decode(std::span<const symbol> symbols) const {
    std::string text(symbols.size(), '\0');
    std::transform(symbols.begin(), symbols.end(), text.begin(), [this](symbol s) { return decode(s); });
    return text;
  }

 private:
  static std::string describe(char c) {
    const unsigned code = static_cast<unsigned char>(c);
    std::string text = std::to_string(code);
    if (code > 32 && code < 127)
      text += std::string(" ('") + c + "')";
    return text;
  }

  std::bitset<256> known_;
  std::array<symbol, 256> symbol_of_{};
  std::string bytes_;
};

}  // namespace char_lm
