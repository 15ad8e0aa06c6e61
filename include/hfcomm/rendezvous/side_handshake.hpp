// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/rendezvous/credentials.hpp>
#include <hfcomm/rendezvous/crypto.hpp>
#include <hfcomm/rendezvous/side_claims.hpp>

namespace hfcomm::rendezvous {

/// The two ends of a connection between machines.
enum class side_role { connector, listener };

/// The state of the proof of the other end.
enum class side_verdict {
  pending,      ///< The handshake is not at its end.
  proven,       ///< It knows the job's secret and belongs to this start of the job.
  unproven,     ///< It does not know the secret, or is no process of hfcomm.
  other_start,  ///< It knows the secret, but belongs to another start of this job.
  other_job,    ///< It knows the secret, but its claims do not fit.
};

/// The handshake of two processes on different machines, as bytes that come and go:
///
///   connector -> listener   hello: what this is, nonce
///   listener -> connector   hello: what this is, nonce
///   connector -> listener   proof: claims, HMAC
///   listener -> connector   proof: claims, HMAC, only after the connector's was right
///
/// The secret is the key of each HMAC. Its text has the sender's role, both nonces, and the claims that the sender
/// knows. Both nonces are new, so a recorded handshake is worth nothing later. The role is in it, so a process's own
/// proof is worth nothing when it is sent back; nor do two ends of one rank fit. Who relays all bytes is part of the
/// wire: what follows is sealed with keys that need the secret. Addresses are not in it, because the two ends see
/// different ones behind NAT; the nonces tie the proof to this connection already.
///
/// At most 184 bytes are read before the proof; all messages have fixed lengths. Whoever does not know the secret
/// learns that hfcomm listens, and a nonce. Without a secret (HFCOMM_AUTH=none), the HMAC is zero, and only mistakes
/// are found.
class side_handshake {
 public:
  static constexpr std::size_t hello_bytes = 48;
  static constexpr std::size_t proof_bytes = side_claims::encoded_bytes + sizeof(bytes_32);

  /// Begins with a new nonce. Throws engine_error where the system has no random bytes.
  side_handshake(side_role role, std::shared_ptr<const admission> own)
      : role_(role), own_(std::move(own)), own_claims_(*own_), nonce_(random_bytes()) {
    if (role_ == side_role::connector) {
      send_hello();
    }
  }

  /// Takes the bytes that the handshake needs from the beginning of `input`, and returns the others.
  byte_view receive(byte_view input) {
    while (!input.empty() && verdict_ == side_verdict::pending) {
      const std::size_t expected = has_hello_ ? proof_bytes : hello_bytes;
      const std::size_t taken = std::min(input.size(), expected - filled_);
      std::memcpy(message_.data() + filled_, input.data(), taken);
      filled_ += taken;
      input = input.subspan(taken);
      if (!has_hello_ && !starts_like_hfcomm()) {
        end(side_verdict::unproven, "the other end does not speak hfcomm's protocol");
      } else if (filled_ == expected) {
        filled_ = 0;
        has_hello_ ? take_proof() : take_hello();
      }
    }
    return input;
  }

  /// Returns the bytes to be sent, which are then forgotten here.
  [[nodiscard]] std::vector<std::byte> take_output() { return std::exchange(output_, {}); }

  [[nodiscard]] side_verdict verdict() const noexcept { return verdict_; }
  /// Returns whether the other end has begun its part.
  [[nodiscard]] bool has_hello() const noexcept { return has_hello_; }
  /// Returns why the other end is refused; empty where it is not.
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }
  /// Returns what a proven peer says of itself.
  [[nodiscard]] const side_claims& peer() const noexcept { return peer_claims_; }

  /// Returns the key that seals what `sender` sends after the handshake. Only between proven ends with a secret.
  [[nodiscard]] bytes_32 key_of(side_role sender) const {
    return authenticate(sender == side_role::connector ? 'c' : 'l', true);
  }

 private:
  static constexpr std::string_view protocol = "hfcomm-side-";
  static constexpr std::string_view version = "001";
  static constexpr std::size_t mode_at = 15;
  static constexpr std::size_t nonce_at = 16;

  [[nodiscard]] char mode() const { return own_->proof.has_secret() ? 's' : 'n'; }

  [[nodiscard]] bool starts_like_hfcomm() const {
    return std::memcmp(message_.data(), protocol.data(), std::min(filled_, protocol.size())) == 0;
  }

  void end(side_verdict verdict, std::string problem) {
    verdict_ = verdict;
    problem_ = std::move(problem);
  }

  void send_hello() {
    const std::string text = detail::concat({protocol, version, mode()});
    append(std::as_bytes(std::span(text)));
    append(nonce_);
  }

  void send_proof() {
    append(own_claims_.encode());
    append(proof_of(role_));
  }

  void append(byte_view bytes) { output_.insert(output_.end(), bytes.begin(), bytes.end()); }

  void take_hello() {
    has_hello_ = true;
    std::memcpy(peer_nonce_.data(), &message_[nonce_at], peer_nonce_.size());
    if (role_ == side_role::listener) {
      send_hello();  // also where the modes differ, so that both ends know
    }
    const char theirs = std::to_integer<char>(message_[mode_at]);
    if (std::memcmp(&message_[protocol.size()], version.data(), version.size()) != 0) {
      end(side_verdict::unproven, "the other end was built with another version of hfcomm");
    } else if (theirs != mode()) {
      end(side_verdict::unproven,
          own_->proof.has_secret()
              ? "the other end proves no secret: is HFCOMM_AUTH=none set there, and not here?"
              : "the other end wants a proof of the job's secret: HFCOMM_AUTH=none is set here, and not there");
    } else if (role_ == side_role::connector) {
      send_proof();
    }
  }

  void take_proof() {
    std::memcpy(peer_encoded_.data(), message_.data(), peer_encoded_.size());
    bytes_32 proof;
    std::memcpy(proof.data(), &message_[peer_encoded_.size()], proof.size());
    const auto& credentials = own_->proof;
    const side_role peer = role_ == side_role::connector ? side_role::listener : side_role::connector;
    if (credentials.has_secret() && !credentials.functions().are_equal(proof, proof_of(peer))) {
      end(side_verdict::unproven,
          "the other end does not know the job's secret: is HFCOMM_SECRET the same on all "
          "machines?");
      return;
    }
    if (role_ == side_role::listener) {
      send_proof();
    }
    peer_claims_ = side_claims::decode(peer_encoded_);
    if (std::string problem = own_claims_.difference(peer_claims_); !problem.empty()) {
      end(side_verdict::other_job, std::move(problem));
    } else if (peer_claims_.epoch != own_->epoch) {
      end(side_verdict::other_start,
          detail::concat({"the process at the other end, ", peer_claims_.who(), ", belongs to start ",
                          peer_claims_.epoch, " of the job, this process to start ", own_->epoch}));
    } else {
      verdict_ = side_verdict::proven;
    }
  }

  /// Returns the proof of one end. The connector's is made before it knows the listener's claims.
  [[nodiscard]] bytes_32 proof_of(side_role sender) const {
    return sender == side_role::connector ? authenticate('C', false) : authenticate('L', true);
  }

  /// Returns the HMAC of what the handshake has said so far, for one purpose; zero where there is no secret. Its text
  /// is unambiguous, because the purpose comes first and decides about the length.
  [[nodiscard]] bytes_32 authenticate(char purpose, bool with_claims_of_listener) const {
    if (!own_->proof.has_secret()) {
      return {};
    }
    const auto own = own_claims_.encode();
    const bool connects = role_ == side_role::connector;
    const std::string label = detail::concat({protocol, version, purpose});
    std::vector<std::byte> text;
    const auto add = [&](byte_view bytes) { text.insert(text.end(), bytes.begin(), bytes.end()); };
    add(std::as_bytes(std::span(label)));
    add(connects ? nonce_ : peer_nonce_);
    add(connects ? peer_nonce_ : nonce_);
    add(connects ? own : peer_encoded_);
    if (with_claims_of_listener) {
      add(connects ? peer_encoded_ : own);
    }
    return own_->proof.functions().hmac(own_->proof.secret(), text);
  }

  side_role role_;
  std::shared_ptr<const admission> own_;
  side_claims own_claims_;
  bytes_32 nonce_;
  std::array<std::byte, std::max(hello_bytes, proof_bytes)> message_{};
  std::size_t filled_ = 0;
  bool has_hello_ = false;
  bytes_32 peer_nonce_{};
  side_claims::encoded peer_encoded_{};
  side_claims peer_claims_;
  side_verdict verdict_ = side_verdict::pending;
  std::string problem_;
  std::vector<std::byte> output_;
};

}  // namespace hfcomm::rendezvous
