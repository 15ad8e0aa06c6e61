// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <hfcomm/engine/operation.hpp>

namespace hfcomm::engines {

/// Takes what the ranks contributed, in pieces. An engine calls it on the calling thread, for each source in chunks of
/// ascending offset. A contribution of 0 bytes comes as one empty chunk. The operation throws what the receiver throws,
/// once this rank is in step with the others again.
class receiver {
 public:
  virtual void receive(int source, std::span<const std::byte> chunk, std::uint64_t offset, std::uint64_t total) = 0;

  /// Takes the number of bytes that each rank contributes for this one, 0 where it contributes none. With
  /// payload::uneven an engine must call it on each rank that receives, before `receive` and `place_for`. It may call
  /// it again with the same numbers.
  virtual void expect(std::span<const std::uint64_t> /*totals*/) {}

  /// Returns memory where an engine may put all `total` bytes of `source` itself, without a call of `receive`; null
  /// where there is none.
  virtual std::byte* place_for(int /*source*/, std::uint64_t /*total*/) { return nullptr; }

 protected:
  ~receiver() = default;
};

/// The receiver of operations without data, and of ranks that receive nothing.
class no_receiver final : public receiver {
 public:
  void receive(int, std::span<const std::byte>, std::uint64_t, std::uint64_t) override {}
};

/// One rank's contribution to an all-to-allv: a part for each rank.
struct rank_parts {
  /// The part for each rank. May be empty where `operation::pattern` has this rank send nothing. Not read where the
  /// parts are equal (payload::buffer).
  std::span<const std::span<const std::byte>> outgoing{};
  /// Equal parts, one after another, each `operation::bytes` long; empty where this rank sends nothing.
  std::span<const std::byte> equal{};
  /// The bytes that this rank expects from each rank; empty where it takes any number. Not read where the parts are
  /// equal (payload::buffer).
  std::span<const std::uint64_t> expected{};
  /// True where only the lengths are compared, and no part moves. The same on all ranks; it is not compared.
  bool lengths_only = false;

  [[nodiscard]] std::span<const std::byte> part_for(const operation& call, std::size_t rank) const {
    if (call.content != payload::buffer) {
      return outgoing[rank];
    }
    const auto bytes = static_cast<std::size_t>(call.bytes);
    return equal.empty() ? equal : equal.subspan(rank * bytes, bytes);
  }
};

}  // namespace hfcomm::engines

namespace hfcomm::detail {

using engines::no_receiver;
using engines::rank_parts;
using engines::receiver;

}  // namespace hfcomm::detail
