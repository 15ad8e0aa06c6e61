// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/element_type.hpp>
#include <hfcomm/core/hash.hpp>
#include <hfcomm/core/reduce_op.hpp>
#include <hfcomm/engine/reduction/kernel.hpp>

namespace hfcomm::engines {

/// The name of an operation as the user wrote it, with its hash, which the compiler calculates.
struct operation_name {
  const char* text = "";
  std::uint64_t hash = 0;

  consteval operation_name(const char* name) : text(name), hash(detail::fnv1a(name)) {}  // NOLINT(*explicit*)
};

/// The ranks that contribute bytes, and the ranks that receive them.
enum class movement : std::uint8_t {
  none,       ///< No bytes move; the ranks only wait for each other.
  from_root,  ///< The root contributes, everyone else receives.
  to_root,    ///< Everyone contributes, the root receives.
  to_all,     ///< Everyone contributes, everyone receives.
  send,       ///< A message; `operation::root` is the rank that receives it.
  receive,    ///< A message; `operation::root` is the rank that sends it; -1 for any rank.
};

/// The kind of bytes. Objects may differ in length from rank to rank. Buffers are equally long on all ranks, except
/// `uneven` ones.
enum class payload : std::uint8_t { nothing, object, buffer, uneven };

/// The `operation::tag` of a receive that takes a message with any tag.
inline constexpr std::uint64_t any_message_tag = ~std::uint64_t{0};

/// One call of a collective or message on one rank: everything that the ranks must agree on, and what error texts tell.
struct operation {
  operation_name name;
  movement pattern = movement::none;
  payload content = payload::nothing;
  element_type element = element_type::none;
  bool reduces = false;
  reduce_kind op = reduce_kind::sum;
  double factor = 1;                          ///< This rank's own factor of a premultiplied sum.
  detail::reduction_kernel kernel = nullptr;  ///< For `element`; null where no engine on the host reduces elements.
  int root = -1;                              ///< -1 where the operation has none; of a message, the other rank.
  std::uint64_t type_hash = 0;                ///< Hash of the object's or element's C++ type.
  std::string_view type_name{};               ///< Must outlive the program (a literal or compiler-made string).
  std::uint64_t bytes = 0;                    ///< This rank's contribution.
  std::uint64_t tag = 0;  ///< A further number that the ranks must agree on: an iteration, a message's tag.
  call_site where = call_site::current();
  std::chrono::nanoseconds timeout{};  ///< How long this rank waits without progress; zero or less: for ever.
  bool leaves_early = false;           ///< This rank need not wait for ranks that it receives nothing from.

  [[nodiscard]] bool contributes(int rank) const noexcept {
    return pattern == movement::to_all || pattern == movement::to_root ||
           (pattern == movement::from_root && rank == root);
  }
  [[nodiscard]] bool receives(int rank) const noexcept {
    return pattern == movement::to_all || (pattern == movement::to_root && rank == root) ||
           (pattern == movement::from_root && rank != root);
  }
  /// Returns whether `rank` wants to leave early, and receives nothing or from the root alone.
  [[nodiscard]] bool may_leave(int rank) const noexcept {
    return leaves_early && (pattern == movement::from_root || (pattern == movement::to_root && rank != root));
  }

  /// Returns a hash of all that must be equal: equal on two ranks exactly where their calls fit each other.
  [[nodiscard]] std::uint64_t signature() const noexcept {
    std::uint64_t hash =
        detail::mix(name.hash, static_cast<std::uint64_t>(content) | static_cast<std::uint64_t>(element) << 8 |
                                   static_cast<std::uint64_t>(op) << 16 |
                                   static_cast<std::uint64_t>(static_cast<std::uint32_t>(root)) << 32);
    hash = detail::mix(detail::mix(hash, type_hash), tag);
    return content == payload::buffer ? detail::mix(hash, bytes) : hash;
  }
};

}  // namespace hfcomm::engines

namespace hfcomm::detail {

using engines::movement;
using engines::operation;
using engines::operation_name;
using engines::payload;

}  // namespace hfcomm::detail
