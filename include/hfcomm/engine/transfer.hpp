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

namespace hfcomm {

/// Is told when a transfer is finished.
class transfer_listener {
 public:
  transfer_listener() = default;
  transfer_listener(const transfer_listener&) = delete;
  transfer_listener& operator=(const transfer_listener&) = delete;
  virtual ~transfer_listener() = default;

  /// Called once, by the thread that finished the transfer, which may be inside another operation: it must not wait.
  /// Returns whether `go_on` is to be called.
  [[nodiscard]] virtual bool on_finish() noexcept = 0;
  /// May wait: it runs on a thread that nothing else needs.
  virtual void continue_caller() = 0;
};

/// One side of one message between two ranks: what the caller wants, and in the end what became of it.
struct transfer {
  explicit transfer(const operation& what) : call(what) {}

  operation call;                     ///< `pattern` is send or receive, `root` the other rank, `tag` the message's.
  std::span<const std::byte> data{};  ///< To send. What it shows must stay until the transfer is finished.
  std::span<std::byte> into{};        ///< Where a buffer is received, `call.bytes` long.
  std::vector<std::byte> object{};    ///< Where an object is received; or memory for `data`.
  /// With a listener, the engine carries the transfer on by itself; without one, only while someone waits in
  /// `host_engine::complete`.
  std::shared_ptr<transfer_listener> listener{};
  /// To send: `data` is the text of what went wrong; a receiver of anything with this tag throws it as peer_error.
  /// Nobody waits for it: where nobody takes it, that is no error.
  bool is_failure = false;

  // Set by the engine; to be read once `finished` is.
  int source = -1;               ///< Who sent it.
  std::exception_ptr problem{};  ///< Why it failed.
  std::atomic<bool> finished{false};
};

}  // namespace hfcomm
