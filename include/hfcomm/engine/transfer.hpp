// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <vector>

#include <hfcomm/engine/operation.hpp>

namespace hfcomm {

/// One side of one message between two ranks: what the caller wants, and in the end what became of it.
struct transfer {
  explicit transfer(const operation& what) : call(what) {}

  operation call;                     ///< `pattern` is send or receive, `root` the other rank, `tag` the message's.
  std::span<const std::byte> data{};  ///< To send. What it shows must stay until the transfer is finished.
  std::span<std::byte> into{};        ///< Where a buffer is received, `call.bytes` long.
  std::vector<std::byte> object{};    ///< Where an object is received; or memory for `data`.
  /// Called once when the transfer is finished, by the thread that finished it, which may be inside another operation:
  /// it must not wait. What it returns may: it runs on a thread that nothing else needs. Where there is an `on_finish`,
  /// the engine goes on with the transfer by itself; where there is none, only while someone waits in
  /// `host_engine::complete`.
  std::function<std::function<void()>()> on_finish{};
  /// To send: `data` is the text of what went wrong; a receiver of anything with this tag throws it as peer_error.
  /// Nobody waits for it: where nobody takes it, that is no error.
  bool is_failure = false;

  // Set by the engine; to be read once `finished` is.
  int source = -1;               ///< Who sent it.
  std::exception_ptr problem{};  ///< Why it failed.
  std::atomic<bool> finished{false};
};

}  // namespace hfcomm
