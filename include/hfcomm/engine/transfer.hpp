// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include <hfcomm/engine/operation.hpp>

namespace hfcomm::engines {

/// A listener for the end of a transfer.
class transfer_listener {
 public:
  transfer_listener() = default;
  transfer_listener(const transfer_listener&) = delete;
  transfer_listener& operator=(const transfer_listener&) = delete;
  virtual ~transfer_listener() = default;

  /// Called once, by the thread that finished the transfer. That may be inside another operation, so this must not
  /// wait. Returns whether `continue_caller` is to be called.
  [[nodiscard]] virtual bool on_finish() noexcept = 0;
  /// Continues what waited for the transfer. May wait: it runs on a thread of its own.
  virtual void continue_caller() = 0;
};

/// One side of one message between two ranks: the call, and in the end its result.
struct transfer {
  explicit transfer(const operation& what) : call(what) {}

  operation call;                     ///< `pattern` is send or receive, `root` the other rank, `tag` the message's.
  std::span<const std::byte> data{};  ///< Bytes to send. They must stay until the transfer is finished.
  std::span<std::byte> into{};        ///< Buffer to receive into, `call.bytes` long.
  std::vector<std::byte> object{};    ///< Object that is received, or memory for `data`.
  /// With a listener, the engine moves the transfer on by itself. Without one, it does only while a thread waits in
  /// `host_engine::complete`.
  std::shared_ptr<transfer_listener> listener{};
  /// True where this rank has failed, and `object` has the text. The peer of the message, of whatever type, throws it
  /// as peer_error. No thread waits for it, and it is no error if no rank takes it.
  bool is_failure = false;
  /// True for a receive that only looks for a message. It is finished once there is one, which stays where it is.
  bool is_probe = false;

  /// Set by the engine: a thread waits for it. Before that, this rank may still send itself what it wants.
  std::atomic<bool> awaited{false};

  // The engine sets these; read them once `finished` is set.
  int source = -1;               ///< The rank that sent it.
  std::uint64_t tag = 0;         ///< The tag that it was sent with.
  std::uint64_t bytes = 0;       ///< Its length.
  std::exception_ptr problem{};  ///< The error; null where it went well.
  std::atomic<bool> finished{false};
};

}  // namespace hfcomm::engines

namespace hfcomm::detail {

using engines::transfer;
using engines::transfer_listener;

}  // namespace hfcomm::detail
