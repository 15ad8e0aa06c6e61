// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

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

/// The claims of a process, as the handshake sends them. They have a fixed length whatever the job key's.
struct side_claims {
  static constexpr std::size_t encoded_bytes = 104;
  using encoded = std::array<std::byte, encoded_bytes>;

  std::uint32_t version = wire_version;
  std::int32_t world_size = 0;
  std::int32_t rank = 0;
  std::uint32_t unused = 0;
  std::uint64_t epoch = 0;
  std::uint64_t job_hash[2] = {};
  char job_beginning[64] = {};  ///< Of the job key, for error texts.

  side_claims() = default;
  explicit side_claims(const admission& own)
      : world_size(own.world_size),
        rank(own.rank),
        epoch(own.epoch),
        job_hash{hfcomm::detail::fnv1a(own.job_key), hfcomm::detail::fnv1a(own.job_key, 0x6c62272e07bb0142ULL)} {
    own.job_key.copy(job_beginning, sizeof(job_beginning));
  }

  [[nodiscard]] encoded encode() const { return std::bit_cast<encoded>(*this); }
  static side_claims decode(const encoded& bytes) { return std::bit_cast<side_claims>(bytes); }

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
      return detail::concat({them, " belongs to the job \"", peer.job(), '"', us, " to the job \"", job(), '"'});
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

  /// Returns the beginning of the job key for people: who chose it may be somebody else.
  [[nodiscard]] std::string job() const {
    std::string text(job_beginning, sizeof(job_beginning));
    text.resize(std::min(text.find('\0'), text.size()));
    for (char& letter : text) {
      letter = letter < ' ' || letter > '~' ? '?' : letter;
    }
    return text;
  }
};

}  // namespace hfcomm::rendezvous
