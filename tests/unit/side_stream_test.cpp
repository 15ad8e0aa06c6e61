// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/core/error.hpp>
#include <hfcomm/rendezvous/credentials.hpp>
#include <hfcomm/rendezvous/crypto_libraries.hpp>
#include <hfcomm/rendezvous/side_claims.hpp>
#include <hfcomm/rendezvous/side_handshake.hpp>
#include <hfcomm/rendezvous/side_stream.hpp>

#include "side_peers.hpp"

namespace {

using namespace side_peers;
using rendezvous::admission;
using rendezvous::credentials;
using rendezvous::side_handshake;
using rendezvous::side_message;
using rendezvous::side_role;
using rendezvous::side_stream;
using rendezvous::side_verdict;

std::shared_ptr<const admission> shared(admission own) { return std::make_shared<const admission>(std::move(own)); }

/// Runs the handshake with claims of the connector that one change makes wrong.
template <class Change>
pair_of_streams handshake_with(Change&& change) {
  admission own = member(1);
  change(own);
  pair_of_streams ends(std::move(own));
  ends.carry();
  return ends;
}

void check_both(const pair_of_streams& ends, side_verdict verdict, std::string_view part) {
  CHECK(ends.connector.verdict() == verdict);
  CHECK(ends.listener.verdict() == verdict);
  CHECK(says(ends.connector.problem(), part));
  CHECK(says(ends.listener.problem(), part));
}

/// Returns a listener that has taken the bytes.
side_stream listener_after(std::span<const std::byte> bytes) {
  side_stream stream(side_role::listener, shared(member(0)));
  stream.receive(bytes);
  return stream;
}

}  // namespace

TEST_CASE("side stream: two ends with one secret prove themselves, and know each other's rank") {
  for (const bool has_secret : {true, false}) {
    const auto proof = has_secret ? with_secret() : credentials::none();
    pair_of_streams ends(member(3, proof), member(0, proof));
    ends.carry();
    CHECK(ends.connector.verdict() == side_verdict::proven);
    CHECK(ends.listener.verdict() == side_verdict::proven);
    CHECK(ends.listener.peer().rank == 3);
    CHECK(ends.connector.peer().rank == 0);
    CHECK(ends.to_listener.size() == side_stream::most_unproven_bytes);
    CHECK(ends.connector.is_sealed() == has_secret);
  }
  CHECK(side_stream::most_unproven_bytes <= 256);
}

TEST_CASE("side stream: ends with different libraries understand each other") {
  const auto sodium = rendezvous::libsodium::load();
  const auto openssl = rendezvous::libcrypto::load();
  if (sodium == nullptr || openssl == nullptr) {
    std::printf("[hfcomm] skipped: side stream: ends with different libraries: this machine has one\n");
    return;
  }
  pair_of_streams ends(member(1, credentials(secret, "the test", *sodium)),
                       member(0, credentials(secret, "the test", *openssl)));
  ends.carry();
  ends.connector.send(1, bytes_of("there"));
  ends.listener.send(1, bytes_of("back"));
  ends.carry();
  CHECK(text_of(ends.listener.next()->bytes) == "there");
  CHECK(text_of(ends.connector.next()->bytes) == "back");
}

TEST_CASE("side stream: a wrong secret is refused before the listener proves anything") {
  pair_of_streams ends(member(1, with_secret("another secret of this job")));
  ends.carry();
  CHECK(ends.listener.verdict() == side_verdict::unproven);
  CHECK(says(ends.listener.problem(), "does not know the job's secret"));
  CHECK(ends.connector.verdict() == side_verdict::pending);
  CHECK(ends.to_connector.size() == side_handshake::hello_bytes);  // the nonce, and no more
}

TEST_CASE("side stream: a listener with a wrong secret is refused") {
  enum class forgery { own_proof, changed_proof, zero };
  for (const forgery kind : {forgery::own_proof, forgery::changed_proof, forgery::zero}) {
    pair_of_streams ends;
    ends.listener.receive(take_output(ends.connector));
    ends.connector.receive(take_output(ends.listener));
    auto proof = take_output(ends.connector);
    REQUIRE(proof.size() == side_handshake::proof_bytes);
    if (kind == forgery::changed_proof) {
      proof.back() ^= std::byte{1};
    } else if (kind == forgery::zero) {
      proof.assign(proof.size(), std::byte{0});
    }
    ends.connector.receive(proof);
    CHECK(ends.connector.verdict() == side_verdict::unproven);
  }
}

TEST_CASE("side stream: a process's own bytes, sent back, prove nothing") {
  side_stream connector(side_role::connector, shared(member(1)));
  for (int message = 0; message < 2; ++message) {
    connector.receive(take_output(connector));
  }
  CHECK(connector.verdict() == side_verdict::unproven);
  // Through the process's own listener they do, but a rank is no peer of itself.
  pair_of_streams ends(member(0));
  ends.carry();
  check_both(ends, side_verdict::other_job, "claim a rank that the job does not have, or the same one");
}

TEST_CASE("side stream: a recorded handshake proves nothing to another listener") {
  pair_of_streams ends;
  ends.carry();
  ends.connector.send(1, bytes_of("text"));
  ends.carry();
  CHECK(listener_after(ends.to_listener).verdict() == side_verdict::unproven);

  side_stream connector(side_role::connector, shared(member(1)));
  connector.receive(ends.to_connector);
  CHECK(connector.verdict() == side_verdict::unproven);
}

TEST_CASE("side stream: every bit of the handshake counts") {
  for (std::size_t bit = 0; bit < 8 * side_stream::most_unproven_bytes; ++bit) {
    pair_of_streams ends;
    auto hello = take_output(ends.connector);
    if (bit / 8 < hello.size()) {
      hello[bit / 8] ^= std::byte{1} << (bit % 8);
    }
    ends.listener.receive(hello);
    ends.connector.receive(take_output(ends.listener));
    auto proof = take_output(ends.connector);
    if (bit / 8 >= hello.size() && bit / 8 - hello.size() < proof.size()) {
      proof[bit / 8 - hello.size()] ^= std::byte{1} << (bit % 8);
    }
    if (ends.listener.problem().empty()) {
      ends.listener.receive(proof);
    }
    CHECK(ends.listener.verdict() == side_verdict::unproven);
  }
}

TEST_CASE("side stream: claims that do not fit are named at both ends") {
  check_both(handshake_with([](admission& own) { own.job_key = "other\njob"; }), side_verdict::other_job, "\"other");
  check_both(handshake_with([](admission& own) { own.job_key = std::string(100, 'x'); }), side_verdict::other_job,
             std::string(64, 'x') + '"');
  check_both(handshake_with([](admission& own) { own.world_size = 5; }), side_verdict::other_job, "rank 1 of 5");
  check_both(handshake_with([](admission& own) { own.rank = 4; }), side_verdict::other_job, "rank 4 of 4");
  check_both(handshake_with([](admission& own) { own.rank = -1; }), side_verdict::other_job, "rank -1 of 4");
  check_both(handshake_with([](admission& own) { own.epoch = 6; }), side_verdict::other_start, "to start 6");
}

TEST_CASE("side claims: another version of hfcomm is named with both versions") {
  const rendezvous::side_claims own(member(0));
  rendezvous::side_claims other(member(1));
  CHECK(own.difference(other).empty());
  other.version = own.version + 1;
  const auto text = own.difference(rendezvous::side_claims::decode(other.encode()));
  CHECK(says(text, "another version of hfcomm"));
  CHECK(says(text, std::to_string(own.version)));
  CHECK(says(text, std::to_string(other.version)));
}

TEST_CASE("side claims: control characters of a job key do not get into error texts") {
  admission own = member(1);
  own.job_key = "a\x1b[2Jb\xff";
  CHECK(rendezvous::side_claims::decode(rendezvous::side_claims(own).encode()).job() == "a?[2Jb?");
  CHECK(rendezvous::side_claims(own).job() == "a?[2Jb?");
}

TEST_CASE("side stream: an end with a secret and one without name HFCOMM_AUTH") {
  pair_of_streams open_connector(member(1, credentials::none()));
  open_connector.carry();
  check_both(open_connector, side_verdict::unproven, "HFCOMM_AUTH=none");
  pair_of_streams open_listener(member(1), member(0, credentials::none()));
  open_listener.carry();
  check_both(open_listener, side_verdict::unproven, "HFCOMM_AUTH=none");
}

TEST_CASE("side stream: another version of the handshake is named, other protocols are refused at their first byte") {
  pair_of_streams ends;
  auto hello = take_output(ends.connector);
  hello[14] = std::byte{'2'};
  CHECK(says(listener_after(hello).problem(), "another version of hfcomm"));
  CHECK(listener_after(bytes_of("GET / HTTP/1.1\r\n\r\n")).verdict() == side_verdict::unproven);
  CHECK(listener_after(bytes_of("G")).verdict() == side_verdict::unproven);
  CHECK(listener_after(bytes_of("hfcomm-side-")).verdict() == side_verdict::pending);
}

TEST_CASE("side stream: messages come whole and in order, however the bytes are cut") {
  std::mt19937 random(5);
  const auto below = [&](std::size_t limit) {
    return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random);
  };
  for (const bool has_secret : {true, false}) {
    const auto proof = has_secret ? with_secret() : credentials::none();
    for (int round = 0; round < 20; ++round) {
      pair_of_streams ends(member(1, proof), member(0, proof));
      ends.carry();
      std::vector<side_message> sent;
      for (std::size_t count = below(30); count > 0; --count) {
        std::vector<std::byte> bytes(below(2) == 0 ? below(4) : below(20'000));
        std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random()); });
        sent.push_back({static_cast<std::uint8_t>(random()), std::move(bytes)});
        ends.connector.send(sent.back().kind, sent.back().bytes);
      }
      const auto all = take_output(ends.connector);
      std::vector<side_message> received;
      for (std::span<const std::byte> left = all; !left.empty();) {
        const std::size_t piece = std::min(left.size(), below(2) == 0 ? 1 + below(7) : 1 + below(50'000));
        ends.listener.receive(left.first(piece));
        left = left.subspan(piece);
        while (auto message = ends.listener.next()) {
          received.push_back(std::move(*message));
        }
      }
      REQUIRE(received.size() == sent.size());
      for (std::size_t index = 0; index < sent.size(); ++index) {
        CHECK(received[index].kind == sent[index].kind);
        CHECK(received[index].bytes == sent[index].bytes);
      }
      CHECK(ends.listener.problem().empty());
    }
  }
}

TEST_CASE("side stream: messages go in both directions, and are not to be read on the way") {
  pair_of_streams ends;
  ends.carry();
  ends.connector.send(1, bytes_of("a text that nobody may read"));
  ends.listener.send(2, bytes_of("an answer"));
  ends.carry();
  CHECK(text_of(ends.listener.next()->bytes) == "a text that nobody may read");
  CHECK(text_of(ends.connector.next()->bytes) == "an answer");
  CHECK(!says(text_of(ends.to_listener), "nobody"));
}

TEST_CASE("side stream: a message that is changed, repeated, left out or sent back ends the stream") {
  const auto problem_of = [](auto&& change) {
    pair_of_streams ends;
    ends.carry();
    ends.connector.send(1, bytes_of("first"));
    const auto first = take_output(ends.connector);
    ends.connector.send(1, bytes_of("second"));
    const auto second = take_output(ends.connector);
    side_stream& reader = change(ends, first, second);
    while (reader.next()) {
    }
    CHECK(!reader.next());
    return reader.problem();
  };
  using bytes = std::vector<std::byte>;
  const std::string changed = "a message of the other end was changed on its way";
  for (std::size_t bit = 4 * 8; bit < (4 + 6 + 16) * 8; ++bit) {
    CHECK(problem_of([&](pair_of_streams& ends, bytes first, const bytes&) -> side_stream& {
            first[bit / 8] ^= std::byte{1} << (bit % 8);
            ends.listener.receive(first);
            return ends.listener;
          }) == changed);
  }
  CHECK(problem_of([](pair_of_streams& ends, const bytes& first, const bytes& second) -> side_stream& {
          ends.listener.receive(first);
          ends.listener.receive(first);
          ends.listener.receive(second);
          return ends.listener;
        }) == changed);
  CHECK(problem_of([](pair_of_streams& ends, const bytes&, const bytes& second) -> side_stream& {
          ends.listener.receive(second);
          return ends.listener;
        }) == changed);
  CHECK(problem_of([](pair_of_streams& ends, const bytes& first, const bytes&) -> side_stream& {
          ends.connector.receive(first);
          return ends.connector;
        }) == changed);
  CHECK(problem_of([](pair_of_streams& ends, const bytes& first, const bytes& second) -> side_stream& {
          ends.listener.receive(first);
          ends.listener.receive(second);
          return ends.listener;
        }).empty());
}

TEST_CASE("side stream: a message of impossible length ends the stream before its bytes come") {
  for (const std::uint32_t length : {0U, (16U << 20) + 2, 0x8000'0000U, 0xffff'ffffU}) {
    pair_of_streams ends;
    ends.carry();
    std::vector<std::byte> bytes(4);
    std::memcpy(bytes.data(), &length, sizeof(length));
    ends.listener.receive(bytes);
    CHECK(!ends.listener.next());
    CHECK(says(ends.listener.problem(), "impossible length: " + std::to_string(length)));
  }
}

TEST_CASE("side stream: the longest message passes, a longer one is an engine_error of its sender") {
  pair_of_streams ends;
  ends.carry();
  std::vector<std::byte> longest(side_message::most_bytes, std::byte{3});
  ends.connector.send(9, longest);
  ends.listener.receive(take_output(ends.connector));
  CHECK(ends.listener.next()->bytes == longest);
  longest.push_back(std::byte{3});
  CHECK_THROWS_AS(ends.connector.send(9, longest), hfcomm::engine_error);
}

TEST_CASE("side stream: nothing is sent to an end that is not proven") {
  pair_of_streams ends;
  take_output(ends.connector);
  ends.connector.send(1, bytes_of("text"));
  CHECK(ends.connector.output().empty());
}
