// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <hfcomm/collectives/detail/exchange_messages.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/engine/receiver.hpp>

namespace hfcomm::detail {

/// A receiver that collects every rank's message.
class messages_receiver final : public receiver {
 public:
  explicit messages_receiver(std::size_t ranks) : messages_(ranks) {}
  messages_receiver(const messages_receiver&) = delete;
  messages_receiver& operator=(const messages_receiver&) = delete;

  void receive(int source, std::span<const std::byte> chunk, std::uint64_t /*offset*/, std::uint64_t total) override {
    auto& message = messages_[static_cast<std::size_t>(source)];
    message.reserve(static_cast<std::size_t>(total));
    message.insert(message.end(), chunk.begin(), chunk.end());
  }

  [[nodiscard]] std::vector<std::vector<std::byte>> take() { return std::move(messages_); }

 private:
  std::vector<std::vector<std::byte>> messages_;
};

HFCOMM_INLINE std::vector<std::vector<std::byte>> exchange_messages(engines::host_engine& engine, const operation& call,
                                                                    std::span<const std::byte> mine) {
  messages_receiver received(static_cast<std::size_t>(engine.size()));
  engine.exchange(call, mine, received);
  return received.take();
}

}  // namespace hfcomm::detail
