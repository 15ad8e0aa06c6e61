// SPDX-License-Identifier: MIT
// Bytes as what another machine sends: before its proof, and after it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <hfcomm/rendezvous/credentials.hpp>
#include <hfcomm/rendezvous/crypto_libraries.hpp>
#include <hfcomm/rendezvous/side_claims.hpp>
#include <hfcomm/rendezvous/side_handshake.hpp>
#include <hfcomm/rendezvous/side_stream.hpp>

#include "targets.hpp"

namespace fuzz {

namespace {

namespace rendezvous = hfcomm::rendezvous;
using rendezvous::side_role;
using rendezvous::side_stream;
using rendezvous::side_verdict;

using shared_admission = std::shared_ptr<const rendezvous::admission>;

shared_admission member(int rank, bool has_secret) {
  const auto proof = has_secret
                         ? rendezvous::credentials("the secret of the fuzzer", "the fuzzer", rendezvous::find_crypto())
                         : rendezvous::credentials::none();
  return std::make_shared<const rendezvous::admission>(rendezvous::admission{proof, "job", 1, 4, rank});
}

/// Moves the output of one end to the other.
void carry(side_stream& from, side_stream& to) {
  const auto output = from.output();
  const std::vector<std::byte> bytes(output.begin(), output.end());
  from.has_sent(bytes.size());
  to.receive(bytes);
}

/// Two ends that have proven themselves.
struct proven_pair {
  explicit proven_pair(bool has_secret)
      : connector(side_role::connector, member(1, has_secret)), listener(side_role::listener, member(0, has_secret)) {
    for (int message = 0; message < 2; ++message) {
      carry(connector, listener);
      carry(listener, connector);
    }
    require(listener.verdict() == side_verdict::proven, "the listener is proven");
    require(connector.verdict() == side_verdict::proven, "the connector is proven");
  }

  side_stream connector;
  side_stream listener;
};

/// Gives the bytes to a stream in pieces, and returns the number of messages that come out.
std::size_t feed(side_stream& stream, bytes input, std::size_t piece) {
  std::size_t messages = 0;
  while (!input.empty()) {
    const bytes part = input.first(std::min(piece, input.size()));
    input = input.subspan(part.size());
    stream.receive(part);
    while (const auto message = stream.next()) {
      require(message->bytes.size() <= rendezvous::side_message::most_bytes, "a message has a bounded length");
      ++messages;
    }
  }
  return messages;
}

/// A stranger: without the secret nothing is proven, and nothing comes out.
void before_the_proof(bytes input, side_role role, bool has_secret) {
  side_stream stream(role, member(0, has_secret));
  const std::size_t piece = choose(input, 64) + 1;
  const std::size_t messages = feed(stream, input, piece);
  if (has_secret) {
    require(stream.verdict() == side_verdict::pending || stream.verdict() == side_verdict::unproven,
            "a stranger is not proven");
    require(stream.output().size() <= side_stream::most_unproven_bytes, "a stranger gets few bytes");
  }
  require(messages == 0 || stream.verdict() == side_verdict::proven, "messages come from a proven end");
  const bool may_be_silent = stream.verdict() == side_verdict::pending || stream.verdict() == side_verdict::proven;
  require(may_be_silent || !stream.problem().empty(), "a refusal has a reason");
}

/// Bytes after the handshake. Where messages are sealed, none of these is one.
void after_the_proof(bytes input, bool has_secret) {
  proven_pair ends(has_secret);
  const std::size_t piece = choose(input, 64) + 1;
  const std::size_t messages = feed(ends.listener, input, piece);
  require(messages == 0 || !has_secret, "an unsealed message is none");
}

/// Messages come out as they were sent.
void round_trip(bytes input, bool has_secret) {
  proven_pair ends(has_secret);
  const std::size_t piece = choose(input, 64) + 1;
  std::vector<bytes> sent;
  while (!input.empty()) {
    const std::size_t wanted = choose(input, 100);  // before the size is asked for
    const std::size_t length = std::min(wanted, input.size());
    sent.push_back(input.first(length));
    input = input.subspan(length);
    ends.connector.send(static_cast<std::uint8_t>(sent.size()), sent.back());
  }
  const auto output = ends.connector.output();
  std::size_t next = 0;
  for (std::size_t at = 0; at < output.size(); at += piece) {
    ends.listener.receive(output.subspan(at, std::min(piece, output.size() - at)));
    while (const auto message = ends.listener.next()) {
      require(next < sent.size() && message->kind == static_cast<std::uint8_t>(next + 1), "messages stay in order");
      require(std::equal(sent[next].begin(), sent[next].end(), message->bytes.begin(), message->bytes.end()),
              "a message comes out as it was sent");
      ++next;
    }
  }
  require(next == sent.size(), "all messages come out");
}

}  // namespace

void read_side_channel(bytes input) {
  const bool has_secret = choose(input, 2) == 0;
  switch (choose(input, 4)) {
    case 0: return before_the_proof(input, side_role::listener, has_secret);
    case 1: return before_the_proof(input, side_role::connector, has_secret);
    case 2: return after_the_proof(input, has_secret);
    default: return round_trip(input, has_secret);
  }
}

}  // namespace fuzz
