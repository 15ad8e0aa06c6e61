// SPDX-License-Identifier: MIT
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <sys/eventfd.h>

#include <hfcomm/engine/hierarchical/control_channel.hpp>
#include <hfcomm/machine/shared_segment.hpp>

namespace hfcomm::engines {

/// The control messages of pretended machines, whose agents are threads of one process.
class memory_control final : public control_channel {
 public:
  /// The messages that have come to each machine, which all channels share.
  class hub {
   public:
    explicit hub(int machines) : ends_(static_cast<std::size_t>(machines)) {
      for (auto& end : ends_) {
        end.event = rendezvous::unique_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        if (!end.event) {
          rendezvous::throw_system("eventfd");
        }
      }
    }

   private:
    friend memory_control;
    struct end_point {
      std::deque<control_message> messages;
      rendezvous::unique_fd event;
    };

    std::mutex mutex_;
    std::vector<end_point> ends_;
  };

  memory_control(std::shared_ptr<hub> shared, int self) : hub_(std::move(shared)), self_(self) {}

  void send(int machine, control_kind kind, std::span<const std::byte> bytes) override {
    const std::scoped_lock lock(hub_->mutex_);
    hub::end_point& end = end_of(machine);
    end.messages.push_back({self_, kind, {bytes.begin(), bytes.end()}});
    static_cast<void>(::eventfd_write(end.event.get(), 1));
  }
  [[nodiscard]] std::optional<control_message> receive() override {
    const std::scoped_lock lock(hub_->mutex_);
    hub::end_point& end = end_of(self_);
    if (end.messages.empty()) {
      eventfd_t count = 0;
      static_cast<void>(::eventfd_read(end.event.get(), &count));
      return std::nullopt;
    }
    auto message = std::move(end.messages.front());
    end.messages.pop_front();
    return message;
  }
  void close(int /*machine*/) override {}
  [[nodiscard]] int descriptor() const override { return end_of(self_).event.get(); }

 private:
  [[nodiscard]] hub::end_point& end_of(int machine) const { return hub_->ends_[static_cast<std::size_t>(machine)]; }

  std::shared_ptr<hub> hub_;
  int self_;
};

}  // namespace hfcomm::engines
