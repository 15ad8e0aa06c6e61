// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/eventfd.h>

#include <hfcomm/engine/links/link.hpp>
#include <hfcomm/machine/shared_segment.hpp>

namespace hfcomm::engines {

/// The transfers between pretended machines, whose agents are threads of one process.
class memory_hub {
 public:
  explicit memory_hub(int machines) : ends_(static_cast<std::size_t>(machines)) {
    for (auto& end : ends_) {
      end.event = rendezvous::unique_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
      if (!end.event) {
        rendezvous::throw_system("eventfd");
      }
    }
  }

  /// Pairs a transfer of `self` with its counterpart, or keeps it until that comes.
  void start(int self, link_transfer& one) {
    const std::scoped_lock lock(mutex_);
    auto& other = end_of(one.machine).waiting;
    const auto counterpart = std::find_if(other.begin(), other.end(), [&](const link_transfer* candidate) {
      return candidate->machine == self && candidate->channel == one.channel && candidate->sends != one.sends;
    });
    if (counterpart == other.end()) {
      end_of(self).waiting.push_back(&one);
      return;
    }
    link_transfer& theirs = **counterpart;
    other.erase(counterpart);
    const link_transfer& source = one.sends ? one : theirs;
    const link_transfer& target = one.sends ? theirs : one;
    const bool fits = source.bytes.size() == target.bytes.size();
    if (fits) {
      std::memcpy(target.bytes.data(), source.bytes.data(), source.bytes.size());
    }
    finish(self, one, !fits);
    finish(one.machine, theirs, !fits);
  }

  /// Ends the transfers of `self` with `machine`; -1: with all.
  void give_up(int self, int machine) {
    const std::scoped_lock lock(mutex_);
    auto& waiting = end_of(self).waiting;
    for (auto one = waiting.begin(); one != waiting.end();) {
      link_transfer& mine = **one;
      if (machine < 0 || mine.machine == machine) {
        one = waiting.erase(one);
        finish(self, mine, true);
      } else {
        ++one;
      }
    }
  }

  [[nodiscard]] int event(int self) { return end_of(self).event.get(); }

 private:
  struct end_point {
    std::list<link_transfer*> waiting;
    rendezvous::unique_fd event;  // readable once a transfer of this end was finished
  };

  [[nodiscard]] end_point& end_of(int machine) { return ends_[static_cast<std::size_t>(machine)]; }

  void finish(int owner, link_transfer& one, bool failed) {
    one.failed = failed;
    one.done.store(true);
    static_cast<void>(::eventfd_write(end_of(owner).event.get(), 1));
  }

  std::mutex mutex_;
  std::vector<end_point> ends_;
};

/// A link of a pretended machine.
class memory_link final : public link {
 public:
  memory_link(std::shared_ptr<memory_hub> hub, int self) : hub_(std::move(hub)), self_(self) {}
  ~memory_link() override { hub_->give_up(self_, -1); }

  [[nodiscard]] std::string_view name() const noexcept override { return "memory"; }
  [[nodiscard]] std::vector<std::byte> address() const override { return {}; }
  void open(int /*self*/, std::vector<std::vector<std::byte>> /*addresses*/) override {}
  void start(link_transfer& one) noexcept override { hub_->start(self_, one); }
  bool progress() noexcept override {
    eventfd_t count = 0;
    return ::eventfd_read(hub_->event(self_), &count) == 0;
  }
  void sleep(int descriptor, std::chrono::microseconds most) noexcept override {
    std::array<pollfd, 2> both{pollfd{hub_->event(self_), POLLIN, 0}, pollfd{descriptor, POLLIN, 0}};
    const timespec limit{most.count() / 1'000'000, most.count() % 1'000'000 * 1000};
    static_cast<void>(::ppoll(both.data(), both.size(), &limit, nullptr));
  }
  void give_up(int machine) noexcept override { hub_->give_up(self_, machine); }
  [[nodiscard]] int failing_machine() const noexcept override { return -1; }

 private:
  std::shared_ptr<memory_hub> hub_;
  int self_;
};

}  // namespace hfcomm::engines
