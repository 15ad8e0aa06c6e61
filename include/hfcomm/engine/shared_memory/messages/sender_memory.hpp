// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/messages/message_endpoint.hpp>

namespace hfcomm::engines {

/// The memory of the ranks that send, from which the receiver of a long message copies it: one copy instead of two, and
/// the sender waits for the receiver in any case. Not thread-safe.
class sender_memory {
 public:
  explicit sender_memory(const message_endpoint& endpoint)
      : endpoint_(endpoint), can_read_(static_cast<std::size_t>(endpoint.size())) {}

  /// Returns whether this rank can read the memory of a rank that has offered it a message.
  [[nodiscard]] bool can_read(int sender) {
    auto& known = can_read_[static_cast<std::size_t>(sender)];
    if (!known) {
      known = endpoint_.health().is_on_this_machine(sender) && can_read_process(probe_of(sender));
    }
    return *known;
  }

  /// Copies the next bytes of a message into `to`. Returns false where they cannot be read, or may have been replaced:
  /// the sender has given the message up, or the process is another one by now.
  [[nodiscard]] bool read(const pending_message& message, std::span<std::byte> to) const noexcept {
    const layout::memory_probe& probe = probe_of(message.peer);
    return read_process(probe, message.address + message.moved, to) && is_process_of(probe) &&
           message.envelope->offer.load() == message.offer && !endpoint_.health().is_broken();
  }

 private:
  [[nodiscard]] const layout::memory_probe& probe_of(int rank) const noexcept {
    return endpoint_.memory().block(rank).probe;
  }

  const message_endpoint& endpoint_;
  std::vector<std::optional<bool>> can_read_;  // by rank, once it was tried
};

}  // namespace hfcomm::engines
