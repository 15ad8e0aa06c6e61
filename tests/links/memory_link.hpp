// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/engine/links/link.hpp>
#include <hfcomm/machine/waiting.hpp>

namespace hfcomm::engines {

/// A network between threads of one process, for tests.
class memory_network {
 public:
  /// Every message arrives up to `most_delay` late, random by `seed`; later ones of its channel wait for it.
  explicit memory_network(std::chrono::microseconds most_delay = {}, std::uint64_t seed = 1)
      : most_delay_(most_delay), random_(seed) {}

  /// Returns a new end, of any machine. The network has to live as long. Any thread may call.
  std::unique_ptr<link> make_end() { return std::make_unique<end>(*this); }

 private:
  using clock = std::chrono::steady_clock;
  using channel_key = std::tuple<int, int, std::uint64_t>;  // sender, receiver, channel

  struct message {
    clock::time_point arrives;
    std::vector<std::byte> bytes;
  };

  struct channel {
    std::deque<message> messages;
    hfcomm::detail::plain_list<link_transfer*> receives;
  };

  /// A send copies its bytes and is done: nothing here touches a sender's memory later.
  class end final : public link {
   public:
    explicit end(memory_network& network)
        : link("memory", true, std::size_t{64} << 10),
          network_(network),
          descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

    ~end() override {
      const std::scoped_lock lock(network_.mutex_);
      give_up_all([](int) { return true; });
      network_.ends_.erase(self_);
      ::close(descriptor_);
    }

    [[nodiscard]] std::vector<std::byte> address() const override { return {std::byte{'m'}}; }

    void open(int self, std::vector<std::vector<std::byte>> /*addresses*/) override {
      const std::scoped_lock lock(network_.mutex_);
      self_ = self;
      network_.ends_[self] = this;
    }

    void start(link_transfer& one) noexcept override {
      const std::scoped_lock lock(network_.mutex_);
      if (std::count(given_up_.begin(), given_up_.end(), one.machine) != 0) {
        one.finish(false);
      } else if (one.sends) {
        auto& to = network_.channels_[{self_, one.machine, one.channel}];
        to.messages.push_back({network_.arrival(), {one.bytes.begin(), one.bytes.end()}});
        one.finish(true);
        if (const auto receiver = network_.ends_.find(one.machine); receiver != network_.ends_.end()) {
          receiver->second->wake();
        }
      } else {
        network_.channels_[{one.machine, self_, one.channel}].receives.push_back(&one);
      }
    }

    void cancel(link_transfer& receive) noexcept override {
      const std::scoped_lock lock(network_.mutex_);
      auto& waiting = network_.channels_[{receive.machine, self_, receive.channel}].receives;
      if (const auto* const found = std::find(waiting.begin(), waiting.end(), &receive); found != waiting.end()) {
        waiting.erase(static_cast<std::size_t>(found - waiting.begin()));
        receive.finish(false);
      }
    }

    bool progress() noexcept override {
      std::uint64_t news = 0;
      [[maybe_unused]] const auto had_news = ::read(descriptor_, &news, sizeof(news));
      const std::scoped_lock lock(network_.mutex_);
      const auto now = clock::now();
      bool moved = false;
      for (auto at = network_.channels_.begin(); at != network_.channels_.end();) {
        auto& [key, one] = *at;
        while (std::get<1>(key) == self_ && !one.receives.empty() && !one.messages.empty() &&
               one.messages.front().arrives <= now) {
          const auto bytes = std::move(one.messages.front().bytes);
          one.messages.pop_front();
          link_transfer& receive = *one.receives[0];
          one.receives.erase(0);
          std::memcpy(receive.bytes.data(), bytes.data(), std::min(bytes.size(), receive.bytes.size()));
          receive.finish(bytes.size() == receive.bytes.size());
          moved = true;
        }
        at = one.receives.empty() && one.messages.empty() ? network_.channels_.erase(at) : std::next(at);
      }
      return moved;
    }

    [[nodiscard]] bool prepare_sleep() noexcept override { return true; }

    void sleep(int descriptor, std::chrono::microseconds most) noexcept override {
      std::array<pollfd, 2> events{{{descriptor, POLLIN, 0}, {descriptor_, POLLIN, 0}}};
      // A message that arrives late is announced when it is sent, and not again.
      detail::poll_events(events, network_.most_delay_.count() > 0 ? std::min(most, network_.most_delay_) : most);
    }

    void give_up(int machine) noexcept override {
      const std::scoped_lock lock(network_.mutex_);
      given_up_.push_back(machine);
      give_up_all([&](int other) { return other == machine; });
    }

    [[nodiscard]] int failing_machine() const noexcept override { return -1; }

   private:
    void wake() const noexcept {
      const std::uint64_t one = 1;
      [[maybe_unused]] const auto written = ::write(descriptor_, &one, sizeof(one));
    }

    template <class Chosen>
    void give_up_all(Chosen is_chosen) noexcept {
      for (auto& [key, one] : network_.channels_) {
        if (std::get<1>(key) == self_ && is_chosen(std::get<0>(key))) {
          for (link_transfer* receive : one.receives) {
            receive->finish(false);
          }
          one.receives.clear();
        }
      }
    }

    memory_network& network_;
    int descriptor_;
    int self_ = -1;
    std::vector<int> given_up_;
  };

  clock::time_point arrival() {
    if (most_delay_.count() == 0) {
      return {};
    }
    return clock::now() +
           std::chrono::microseconds(std::uniform_int_distribution<std::int64_t>(0, most_delay_.count())(random_));
  }

  std::mutex mutex_;
  std::chrono::microseconds most_delay_;
  std::mt19937_64 random_;
  std::map<channel_key, channel> channels_;
  std::map<int, end*> ends_;
};

}  // namespace hfcomm::engines
