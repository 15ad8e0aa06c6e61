// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/rendezvous/crypto.hpp>
#include <hfcomm/rendezvous/side_handshake.hpp>

namespace hfcomm::rendezvous {

/// A message between machines. What the kinds mean is the users' matter.
struct side_message {
  static constexpr std::size_t most_bytes = std::size_t{16} << 20;

  std::uint8_t kind = 0;
  std::vector<std::byte> bytes;
};

/// One end of a connection between machines, as bytes that come and go: the handshake, then messages. A message is its
/// length (of kind and bytes, 4 bytes), its kind (1 byte) and its bytes. Where there is a secret, all but the length is
/// sealed, with one key for each direction and the message's number as the nonce, so that none is changed, left out,
/// repeated or moved unnoticed. A wrong length shows as a wrong seal.
class side_stream {
 public:
  /// Bytes that one end may send before its proof is complete. Read no more at once while the verdict is pending.
  static constexpr std::size_t most_unproven_bytes = side_handshake::hello_bytes + side_handshake::proof_bytes;

  side_stream(side_role role, const std::shared_ptr<const admission>& own)
      : role_(role), functions_(own->proof.has_secret() ? &own->proof.functions() : nullptr), handshake_(role, own) {
    append(handshake_.take_output());
  }

  // See side_handshake.
  [[nodiscard]] side_verdict verdict() const noexcept { return handshake_.verdict(); }
  [[nodiscard]] bool has_hello() const noexcept { return handshake_.has_hello(); }
  [[nodiscard]] const side_claims& peer() const noexcept { return handshake_.peer(); }
  /// Returns why the stream is useless; empty where it is not.
  [[nodiscard]] const std::string& problem() const noexcept {
    return problem_.empty() ? handshake_.problem() : problem_;
  }

  [[nodiscard]] side_role role() const noexcept { return role_; }
  /// Returns whether there is a secret, so that messages are sealed.
  [[nodiscard]] bool is_sealed() const noexcept { return functions_ != nullptr; }

  /// Takes bytes that have come, in pieces of any length.
  void receive(byte_view bytes) {
    if (verdict() == side_verdict::pending) {
      bytes = handshake_.receive(bytes);
      append(handshake_.take_output());
      if (verdict() == side_verdict::proven && is_sealed()) {
        const bool connects = role_ == side_role::connector;
        sending_.key = handshake_.key_of(role_);
        receiving_.key = handshake_.key_of(connects ? side_role::listener : side_role::connector);
      }
    }
    if (verdict() == side_verdict::proven && problem_.empty()) {
      input_.insert(input_.end(), bytes.begin(), bytes.end());
    }
  }

  /// Returns the next message that is complete; nullopt where there is none, or where there is a problem.
  [[nodiscard]] std::optional<side_message> next() {
    const byte_view unread = byte_view(input_).subspan(begin_);
    if (!problem_.empty() || unread.size() < length_bytes) {
      return std::nullopt;
    }
    std::uint32_t length = 0;
    std::memcpy(&length, unread.data(), length_bytes);
    if (length < 1 || length > side_message::most_bytes + 1) {
      problem_ = detail::concat({"the other end sent a message of impossible length: ", length, " bytes"});
      return std::nullopt;
    }
    const std::size_t sent = std::size_t{length} + (is_sealed() ? crypto::tag_bytes : 0);
    if (unread.size() - length_bytes < sent) {
      return std::nullopt;
    }
    auto plain = open(unread.subspan(length_bytes, sent));
    if (!plain) {
      problem_ = "a message of the other end was changed on its way";
      return std::nullopt;
    }
    begin_ += length_bytes + sent;
    drop_beginning(input_, begin_);
    const auto kind = std::to_integer<std::uint8_t>(plain->front());
    plain->erase(plain->begin());
    return side_message{kind, std::move(*plain)};
  }

  /// Appends a message to the output, if the other end is proven. Throws engine_error where it has more than 16 MiB.
  void send(std::uint8_t kind, byte_view bytes) {
    if (bytes.size() > side_message::most_bytes) {
      detail::throw_error<engine_error>(
          {"a message between machines has ", bytes.size(), " bytes; at most 16 MiB are allowed"});
    }
    if (verdict() != side_verdict::proven) {
      return;
    }
    const std::size_t begin = output_.size() + length_bytes;
    const std::size_t needed = begin + 1 + bytes.size() + crypto::tag_bytes;
    if (output_.capacity() < needed) {
      output_.reserve(std::max(needed, 2 * output_.capacity()));
    }
    output_.resize(begin);
    const auto length = static_cast<std::uint32_t>(bytes.size() + 1);
    std::memcpy(&output_[begin - length_bytes], &length, length_bytes);
    output_.push_back(static_cast<std::byte>(kind));
    append(bytes);
    if (is_sealed()) {
      try {
        functions_->seal(sending_.key, sending_.number++, output_, begin);
      } catch (...) {
        output_.resize(begin - length_bytes);  // nothing leaves that is not sealed
        throw;
      }
    }
  }

  /// Returns the bytes to be sent.
  [[nodiscard]] byte_view output() const { return byte_view(output_).subspan(sent_); }
  /// Forgets that many bytes of the output.
  void has_sent(std::size_t bytes) {
    sent_ += bytes;
    drop_beginning(output_, sent_);
  }

 private:
  static constexpr std::size_t length_bytes = sizeof(std::uint32_t);

  struct direction {
    bytes_32 key{};
    std::uint64_t number = 0;
  };

  void append(byte_view bytes) { output_.insert(output_.end(), bytes.begin(), bytes.end()); }

  [[nodiscard]] std::optional<std::vector<std::byte>> open(byte_view sent) {
    if (is_sealed()) {
      return functions_->open(receiving_.key, receiving_.number++, sent);
    }
    return std::vector<std::byte>(sent.begin(), sent.end());
  }

  /// Removes what is no longer needed where it is half of the bytes, so that each byte moves once on average. Of many
  /// connections, none keeps the memory of a long message.
  static void drop_beginning(std::vector<std::byte>& bytes, std::size_t& unneeded) {
    constexpr std::size_t most_kept = std::size_t{16} << 10;
    if (unneeded == bytes.size() && bytes.capacity() > most_kept) {
      bytes = {};
      unneeded = 0;
    } else if (2 * unneeded >= bytes.size()) {
      bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(unneeded));
      unneeded = 0;
    }
  }

  side_role role_;
  const crypto* functions_;  // null: nothing is sealed
  side_handshake handshake_;
  direction sending_;
  direction receiving_;
  std::vector<std::byte> input_;
  std::size_t begin_ = 0;  // of what is unread in it
  std::vector<std::byte> output_;
  std::size_t sent_ = 0;
  std::string problem_;
};

}  // namespace hfcomm::rendezvous
