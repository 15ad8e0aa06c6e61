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
class control_hub {
 public:
  explicit control_hub(int machines) : ends_(static_cast<std::size_t>(machines)) {
    for (auto& end : ends_) {
      end.event = rendezvous::unique_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
      if (!end.event) {
        rendezvous::throw_system("eventfd");
      }
    }
  }

  void send(int from, int to, control_kind kind, std::span<const std::byte> bytes) {
    const std::scoped_lock lock(mutex_);
    end_point& end = ends_[static_cast<std::size_t>(to)];
    end.messages.push_back({from, kind, {bytes.begin(), bytes.end()}});
    static_cast<void>(::eventfd_write(end.event.get(), 1));
  }

  [[nodiscard]] std::optional<control_message> receive(int self) {
    const std::scoped_lock lock(mutex_);
    end_point& end = ends_[static_cast<std::size_t>(self)];
    if (end.messages.empty()) {
      eventfd_t count = 0;
      static_cast<void>(::eventfd_read(end.event.get(), &count));
      return std::nullopt;
    }
    auto message = std::move(end.messages.front());
    end.messages.pop_front();
    return message;
  }

  [[nodiscard]] int event(int self) const { return ends_[static_cast<std::size_t>(self)].event.get(); }

 private:
  struct end_point {
    std::deque<control_message> messages;
    rendezvous::unique_fd event;
  };

  std::mutex mutex_;
  std::vector<end_point> ends_;
};

class memory_control final : public control_channel {
 public:
  memory_control(std::shared_ptr<control_hub> hub, int self) : hub_(std::move(hub)), self_(self) {}

  void send(int machine, control_kind kind, std::span<const std::byte> bytes) override {
    hub_->send(self_, machine, kind, bytes);
  }
  [[nodiscard]] std::optional<control_message> receive() override { return hub_->receive(self_); }
  void close(int /*machine*/) override {}
  [[nodiscard]] int descriptor() const override { return hub_->event(self_); }

 private:
  std::shared_ptr<control_hub> hub_;
  int self_;
};

}  // namespace hfcomm::engines
