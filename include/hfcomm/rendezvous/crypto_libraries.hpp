// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/machine/library.hpp>
#include <hfcomm/rendezvous/crypto.hpp>

/// The libraries that `crypto` may come from. The types of their functions are declared here, because neither's headers
/// need be installed where hfcomm is compiled; both promise not to change them.
namespace hfcomm::rendezvous {

class libsodium final : public crypto {
 public:
  /// Takes the functions of the library. Throws engine_error where one is missing.
  explicit libsodium(const hfcomm::detail::library& found) {
    const auto here = call_site::current();
    found.fill(init_, "sodium_init", false, here);
    found.fill(memcmp_, "sodium_memcmp", false, here);
    found.fill(state_bytes_, "crypto_auth_hmacsha256_statebytes", false, here);
    found.fill(hmac_init_, "crypto_auth_hmacsha256_init", false, here);
    found.fill(hmac_update_, "crypto_auth_hmacsha256_update", false, here);
    found.fill(hmac_final_, "crypto_auth_hmacsha256_final", false, here);
    found.fill(encrypt_, "crypto_aead_chacha20poly1305_ietf_encrypt", false, here);
    found.fill(decrypt_, "crypto_aead_chacha20poly1305_ietf_decrypt", false, here);
    require(init_() >= 0, "sodium_init");
  }

  /// Returns the library; null where this machine has none.
  static std::unique_ptr<crypto> load() {
    const hfcomm::detail::library found("libsodium", "HFCOMM_LIBSODIUM_LIBRARY",
                                        "crypto_aead_chacha20poly1305_ietf_encrypt",
                                        {"libsodium.so.23", "libsodium.so.26", "libsodium.so"});
    return found.is_found() ? std::make_unique<libsodium>(found) : nullptr;
  }

  [[nodiscard]] std::string_view name() const noexcept override { return "libsodium"; }

  [[nodiscard]] bytes_32 hmac(byte_view key, byte_view message) const override {
    std::vector<std::uint64_t> state(state_bytes_() / sizeof(std::uint64_t) + 1);  // operator new aligns for all types
    bytes_32 result;
    const bool has_worked = hmac_init_(state.data(), source_of(key), key.size()) == 0 &&
                            hmac_update_(state.data(), source_of(message), message.size()) == 0 &&
                            hmac_final_(state.data(), target_of(result)) == 0;
    require(has_worked, "crypto_auth_hmacsha256");
    return result;
  }

  [[nodiscard]] bool are_equal(const bytes_32& first, const bytes_32& second) const override {
    return memcmp_(first.data(), second.data(), first.size()) == 0;
  }

  void seal(const bytes_32& key, std::uint64_t number, std::vector<std::byte>& bytes,
            std::size_t begin) const override {
    const std::size_t length = bytes.size() - begin;
    bytes.resize(bytes.size() + tag_bytes);
    const auto text = std::span(bytes).subspan(begin);
    const bool has_worked = encrypt_(target_of(text), nullptr, source_of(text), length, nullptr, 0, nullptr,
                                     nonce_of(number).data(), source_of(key)) == 0;
    require(has_worked, "crypto_aead_chacha20poly1305_ietf_encrypt");
  }

 protected:
  [[nodiscard]] bool decrypt(const bytes_32& key, std::uint64_t number, byte_view sealed,
                             std::span<std::byte> plain) const override {
    return decrypt_(target_of(plain), nullptr, nullptr, source_of(sealed), sealed.size(), nullptr, 0,
                    nonce_of(number).data(), source_of(key)) == 0;
  }

 private:
  using size = unsigned long long;

  int (*init_)() = nullptr;
  int (*memcmp_)(const void*, const void*, std::size_t) = nullptr;
  std::size_t (*state_bytes_)() = nullptr;
  int (*hmac_init_)(void* state, const unsigned char* key, std::size_t) = nullptr;
  int (*hmac_update_)(void* state, const unsigned char* message, size) = nullptr;
  int (*hmac_final_)(void* state, unsigned char* result) = nullptr;
  int (*encrypt_)(unsigned char* sealed, size*, const unsigned char* plain, size, const unsigned char* additional, size,
                  const unsigned char* unused, const unsigned char* nonce, const unsigned char* key) = nullptr;
  int (*decrypt_)(unsigned char* plain, size*, unsigned char* unused, const unsigned char* sealed, size,
                  const unsigned char* additional, size, const unsigned char* nonce,
                  const unsigned char* key) = nullptr;
};

class libcrypto final : public crypto {
 public:
  explicit libcrypto(const hfcomm::detail::library& found) {
    const auto here = call_site::current();
    found.fill(memcmp_, "CRYPTO_memcmp", false, here);
    found.fill(sha256_, "EVP_sha256", false, here);
    found.fill(hmac_, "HMAC", false, here);
    found.fill(cipher_, "EVP_chacha20_poly1305", false, here);
    found.fill(new_context_, "EVP_CIPHER_CTX_new", false, here);
    found.fill(free_context_, "EVP_CIPHER_CTX_free", false, here);
    found.fill(control_, "EVP_CIPHER_CTX_ctrl", false, here);
    found.fill(init_, "EVP_CipherInit_ex", false, here);
    found.fill(update_, "EVP_CipherUpdate", false, here);
    found.fill(final_, "EVP_CipherFinal_ex", false, here);
  }

  static std::unique_ptr<crypto> load() {
    const hfcomm::detail::library found("libcrypto", "HFCOMM_LIBCRYPTO_LIBRARY", "EVP_chacha20_poly1305",
                                        {"libcrypto.so.3"});
    return found.is_found() ? std::make_unique<libcrypto>(found) : nullptr;
  }

  [[nodiscard]] std::string_view name() const noexcept override { return "libcrypto"; }

  [[nodiscard]] bytes_32 hmac(byte_view key, byte_view message) const override {
    bytes_32 result;
    unsigned bytes = 0;
    const bool has_worked = hmac_(sha256_(), key.data(), size_of(key), source_of(message), message.size(),
                                  target_of(result), &bytes) != nullptr;
    require(has_worked && bytes == result.size(), "HMAC");
    return result;
  }

  [[nodiscard]] bool are_equal(const bytes_32& first, const bytes_32& second) const override {
    return memcmp_(first.data(), second.data(), first.size()) == 0;
  }

  void seal(const bytes_32& key, std::uint64_t number, std::vector<std::byte>& bytes,
            std::size_t begin) const override {
    const std::size_t end = bytes.size();
    bytes.resize(end + tag_bytes);
    const auto text = std::span(bytes).subspan(begin, end - begin);
    const auto context = start(key, number, true);
    const bool has_worked = update(context, text, text) && finish(context) &&
                            control_(context.get(), get_tag, int{tag_bytes}, bytes.data() + end) == 1;
    require(has_worked, "EVP_chacha20_poly1305");
  }

 protected:
  [[nodiscard]] bool decrypt(const bytes_32& key, std::uint64_t number, byte_view sealed,
                             std::span<std::byte> plain) const override {
    bytes_32 tag{};
    std::memcpy(tag.data(), sealed.last(tag_bytes).data(), tag_bytes);
    const auto context = start(key, number, false);
    require(control_(context.get(), set_tag, int{tag_bytes}, tag.data()) == 1, "EVP_CIPHER_CTX_ctrl");
    require(update(context, sealed.first(plain.size()), plain), "EVP_CipherUpdate");
    return finish(context);
  }

 private:
  static constexpr int get_tag = 0x10;  // EVP_CTRL_AEAD_GET_TAG
  static constexpr int set_tag = 0x11;  // EVP_CTRL_AEAD_SET_TAG

  struct free_context {
    void (*free)(void*);
    void operator()(void* context) const { free(context); }
  };
  using owned_context = std::unique_ptr<void, free_context>;

  [[nodiscard]] int size_of(byte_view bytes) const {
    require(bytes.size() <= std::size_t{std::numeric_limits<int>::max()}, "taking so many bytes");
    return static_cast<int>(bytes.size());
  }

  [[nodiscard]] owned_context start(const bytes_32& key, std::uint64_t number, bool encrypts) const {
    owned_context context(new_context_(), {free_context_});
    require(context != nullptr, "EVP_CIPHER_CTX_new");
    require(init_(context.get(), cipher_(), nullptr, source_of(key), nonce_of(number).data(), encrypts ? 1 : 0) == 1,
            "EVP_CipherInit_ex (in FIPS mode, perhaps? install libsodium)");
    return context;
  }

  [[nodiscard]] bool update(const owned_context& context, byte_view from, std::span<std::byte> to) const {
    int bytes = 0;
    return from.empty() || update_(context.get(), target_of(to), &bytes, source_of(from), size_of(from)) == 1;
  }

  /// Returns whether the tag is right, where bytes are opened. Writes none: the cipher has no blocks.
  [[nodiscard]] bool finish(const owned_context& context) const {
    std::array<unsigned char, 64> unused{};
    int bytes = 0;
    return final_(context.get(), unused.data(), &bytes) == 1;
  }

  int (*memcmp_)(const void*, const void*, std::size_t) = nullptr;
  const void* (*sha256_)() = nullptr;
  unsigned char* (*hmac_)(const void* digest, const void* key, int, const unsigned char* message, std::size_t,
                          unsigned char* result, unsigned* result_bytes) = nullptr;
  const void* (*cipher_)() = nullptr;
  void* (*new_context_)() = nullptr;
  void (*free_context_)(void*) = nullptr;
  int (*control_)(void* context, int what, int bytes, void* data) = nullptr;
  int (*init_)(void* context, const void* cipher, void* engine, const unsigned char* key, const unsigned char* nonce,
               int encrypts) = nullptr;
  int (*update_)(void* context, unsigned char* to, int* to_bytes, const unsigned char* from, int) = nullptr;
  int (*final_)(void* context, unsigned char* to, int* to_bytes) = nullptr;
};

/// Returns the first library that this machine has. Throws engine_error where it has none.
inline std::unique_ptr<crypto> load_crypto() {
  auto found = libsodium::load();
  if (found == nullptr) {
    found = libcrypto::load();
  }
  if (found == nullptr) {
    detail::throw_error<engine_error>(
        {"the proof of the job's secret needs libsodium.so.23 or libcrypto.so.3, and this machine has "
         "neither: install libsodium (Debian: libsodium23) or OpenSSL 3, set HFCOMM_LIBSODIUM_LIBRARY to "
         "its path, or set HFCOMM_AUTH=none on all machines where the network is trusted"});
  }
  return found;
}

/// Returns the same library at every call.
inline const crypto& find_crypto() {
  static const std::unique_ptr<crypto> found = load_crypto();
  return *found;
}

}  // namespace hfcomm::rendezvous
