// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hfcomm/rendezvous/credentials.hpp>
#include <hfcomm/rendezvous/crypto_libraries.hpp>
#include <hfcomm/rendezvous/side_claims.hpp>
#include <hfcomm/rendezvous/side_stream.hpp>

/// Helpers of the tests of connections between machines.
namespace side_peers {

namespace rendezvous = hfcomm::rendezvous;

inline const std::string secret = "the secret of this job: 0123456789";

inline rendezvous::credentials with_secret(const std::string& text = secret) {
  return {text, "the test", rendezvous::find_crypto()};
}

/// Returns what a rank of a job of four says of itself.
inline rendezvous::admission member(int rank, rendezvous::credentials proof = with_secret()) {
  return {std::move(proof), "job", 7, 4, rank};
}

inline std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline bool says(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

/// Removes and returns what a stream wants to send.
inline std::vector<std::byte> take_output(rendezvous::side_stream& stream) {
  const auto output = stream.output();
  std::vector<std::byte> bytes(output.begin(), output.end());
  stream.has_sent(bytes.size());
  return bytes;
}

/// Two ends without a network.
struct pair_of_streams {
  explicit pair_of_streams(rendezvous::admission of_connector = member(1),
                           rendezvous::admission of_listener = member(0))
      : connector(rendezvous::side_role::connector,
                  std::make_shared<const rendezvous::admission>(std::move(of_connector))),
        listener(rendezvous::side_role::listener,
                 std::make_shared<const rendezvous::admission>(std::move(of_listener))) {}

  /// Carries bytes until none are left, and notes them. An end with a problem sends what it has, and reads no more.
  void carry() {
    while (!connector.output().empty() || !listener.output().empty()) {
      const auto there = take_output(connector);
      if (listener.problem().empty()) {
        listener.receive(there);
        to_listener.insert(to_listener.end(), there.begin(), there.end());
      }
      const auto back = take_output(listener);
      if (connector.problem().empty()) {
        connector.receive(back);
        to_connector.insert(to_connector.end(), back.begin(), back.end());
      }
    }
  }

  rendezvous::side_stream connector;
  rendezvous::side_stream listener;
  std::vector<std::byte> to_listener;
  std::vector<std::byte> to_connector;
};

}  // namespace side_peers
