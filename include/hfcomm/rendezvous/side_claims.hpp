// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/hash.hpp>
#include <hfcomm/core/version.hpp>
#include <hfcomm/rendezvous/credentials.hpp>

namespace hfcomm::rendezvous {

/// Claims of a process about itself, which another one must fit, when they connect across machines.
struct admission {
  credentials proof;
  std::string job_key;      ///< Names the job: equal on its ranks, different for other jobs.
  std::uint64_t epoch = 0;  ///< Number of the job's start: processes of an earlier start may still end.
  int world_size = 0;
  int rank = 0;  ///< This process's own.
};

/// Writes an integer, its least significant byte first.
template <class Integer>
void put_integer(std::byte* to, Integer value) {
  for (std::size_t index = 0; index < sizeof(Integer); ++index) {
    to[index] = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * index));
  }
}

/// Returns an integer that put_integer has written.
template <class Integer>
Integer take_integer(const std::byte* from) {
  std::uint64_t value = 0;
  for (std::size_t index = 0; index < sizeof(Integer); ++index) {
    value |= std::to_integer<std::uint64_t>(from[index]) << (8 * index);
  }
  return static_cast<Integer>(value);
}

/// The claims of a process, as the handshake sends them. They have a fixed length whatever the job key's.
struct side_claims {
  static constexpr std::size_t encoded_bytes = 104;
  static constexpr std::size_t most_of_job_key = 64;
  using encoded = std::array<std::byte, encoded_bytes>;

  std::uint32_t version = wire_version;
  std::int32_t world_size = 0;
  std::int32_t rank = 0;
  std::uint64_t epoch = 0;
  std::uint64_t job_hash[2] = {};
  std::string job_beginning;  ///< At most 64 bytes of the job key, for error texts.

  side_claims() = default;
  explicit side_claims(const admission& own)
      : world_size(own.world_size),
        rank(own.rank),
        epoch(own.epoch),
        job_hash{hfcomm::detail::fnv1a(own.job_key), hfcomm::detail::fnv1a(own.job_key, 0x6c62272e07bb0142ULL)},
        job_beginning(printable(std::string_view(own.job_key).substr(0, most_of_job_key))) {}

  [[nodiscard]] encoded encode() const {
    encoded bytes{};
    put_integer(&bytes[0], version);
    put_integer(&bytes[4], world_size);
    put_integer(&bytes[8], rank);  // [12] to [15] are zero
    put_integer(&bytes[16], epoch);
    put_integer(&bytes[24], job_hash[0]);
    put_integer(&bytes[32], job_hash[1]);
    std::memcpy(&bytes[40], job_beginning.data(), std::min(job_beginning.size(), most_of_job_key));
    return bytes;
  }

  static side_claims decode(std::span<const std::byte, encoded_bytes> bytes) {
    side_claims result;
    result.version = take_integer<std::uint32_t>(&bytes[0]);
    result.world_size = take_integer<std::int32_t>(&bytes[4]);
    result.rank = take_integer<std::int32_t>(&bytes[8]);
    result.epoch = take_integer<std::uint64_t>(&bytes[16]);
    result.job_hash[0] = take_integer<std::uint64_t>(&bytes[24]);
    result.job_hash[1] = take_integer<std::uint64_t>(&bytes[32]);
    const std::string_view text(reinterpret_cast<const char*>(&bytes[40]), most_of_job_key);
    result.job_beginning = printable(text.substr(0, text.find('\0')));
    return result;
  }

  /// Returns "rank 3 of 8".
  [[nodiscard]] std::string who() const { return detail::concat({"rank ", rank, " of ", world_size}); }

  /// Returns why a process with these claims and one with the peer's are not of one job; empty where they are. Both
  /// ends know both claims, so both get the text.
  [[nodiscard]] std::string difference(const side_claims& peer) const {
    const std::string them = detail::concat({"the process at the other end, ", peer.who(), ','});
    const std::string us = detail::concat({", this process, ", who(), ','});
    if (peer.version != version) {
      return detail::concat({them, " was built with another version of hfcomm: its wire version is ", peer.version, us,
                             " has ", version});
    }
    if (peer.job_hash[0] != job_hash[0] || peer.job_hash[1] != job_hash[1]) {
      return detail::concat(
          {them, " belongs to the job \"", peer.job_beginning, '"', us, " to the job \"", job_beginning, '"'});
    }
    if (peer.world_size != world_size) {
      return detail::concat({them, " disagrees about the size of the job with this process, ", who()});
    }
    const auto has_rank = [&](std::int32_t one) { return one >= 0 && one < world_size; };
    if (!has_rank(peer.rank) || !has_rank(rank) || peer.rank == rank) {
      return detail::concat({"the process at the other end, ", peer.who(), ", and this process, ", who(),
                             ", claim a rank that the job does not have, or the same one"});
    }
    return {};
  }

 private:
  /// Returns a text for people: who chose it may be somebody else.
  static std::string printable(std::string_view text) {
    std::string result(text);
    for (char& letter : result) {
      letter = letter < ' ' || letter > '~' ? '?' : letter;
    }
    return result;
  }
};

}  // namespace hfcomm::rendezvous
