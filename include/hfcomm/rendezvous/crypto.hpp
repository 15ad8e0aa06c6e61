// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <hfcomm/core/error.hpp>
#include <hfcomm/machine/random_id.hpp>

namespace hfcomm::rendezvous {

using byte_view = std::span<const std::byte>;
/// A key, a nonce of the handshake, or the result of HMAC-SHA-256.
using bytes_32 = std::array<std::byte, 32>;

/// The cryptography of connections between machines, from a library of the system; hfcomm has none of its own. All
/// libraries give the same bytes, so that two machines may have different ones.
///
/// The functions throw engine_error where the library fails. Any thread may call.
class crypto {
 public:
  /// Bytes that `seal` adds.
  static constexpr std::size_t tag_bytes = 16;

  crypto() = default;
  crypto(const crypto&) = delete;
  crypto& operator=(const crypto&) = delete;
  virtual ~crypto() = default;

  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  /// Returns HMAC-SHA-256 (RFC 2104) of a message, with a key of any length.
  [[nodiscard]] virtual bytes_32 hmac(byte_view key, byte_view message) const = 0;

  /// Returns whether both are equal, in a time that does not tell where they differ.
  [[nodiscard]] virtual bool are_equal(const bytes_32& first, const bytes_32& second) const = 0;

  /// Encrypts the bytes from `begin` on in place and appends their tag, by ChaCha20-Poly1305 (RFC 8439) with `number`
  /// as the nonce. A key must not get a number twice.
  virtual void seal(const bytes_32& key, std::uint64_t number, std::vector<std::byte>& bytes,
                    std::size_t begin) const = 0;

  /// Returns what was sealed with that key and number; nullopt where these are other bytes.
  [[nodiscard]] std::optional<std::vector<std::byte>> open(const bytes_32& key, std::uint64_t number,
                                                           byte_view sealed) const {
    std::vector<std::byte> plain(sealed.size() - std::min(sealed.size(), tag_bytes));
    const bool is_authentic = sealed.size() >= tag_bytes && decrypt(key, number, sealed, plain);
    return is_authentic ? std::optional(std::move(plain)) : std::nullopt;
  }

 protected:
  /// Decrypts into `plain`, which has the right size; returns whether the tag is right.
  [[nodiscard]] virtual bool decrypt(const bytes_32& key, std::uint64_t number, byte_view sealed,
                                     std::span<std::byte> plain) const = 0;

  static const unsigned char* source_of(byte_view bytes) {
    return reinterpret_cast<const unsigned char*>(bytes.data());
  }
  static unsigned char* target_of(std::span<std::byte> bytes) { return reinterpret_cast<unsigned char*>(bytes.data()); }

  /// Returns the nonce of 96 bits: the number, least significant byte first, and zeros.
  static std::array<unsigned char, 12> nonce_of(std::uint64_t number) {
    std::array<unsigned char, 12> nonce{};
    for (std::size_t index = 0; index < sizeof(number); ++index) {
      nonce[index] = static_cast<unsigned char>(number >> (8 * index));
    }
    return nonce;
  }

  void require(bool has_worked, const char* function) const {
    if (!has_worked) {
      detail::throw_error<engine_error>({name(), ": ", function, " failed"});
    }
  }
};

/// Returns 32 random bytes from the system. Throws engine_error where it has none.
inline bytes_32 random_bytes() {
  return std::bit_cast<bytes_32>(std::array{random_word(), random_word(), random_word(), random_word()});
}

}  // namespace hfcomm::rendezvous
