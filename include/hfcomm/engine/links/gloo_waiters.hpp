// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <gloo/transport/unbound_buffer.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <hfcomm/engine/links/link.hpp>

namespace hfcomm::engines {

/// Threads that wait for Gloo's transfers, because Gloo has no test for their end. A channel with transfers under way
/// has a thread, so that none waits behind another channel's.
class gloo_waiters {
 public:
  using buffer = ::gloo::transport::UnboundBuffer;

  gloo_waiters() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  gloo_waiters(const gloo_waiters&) = delete;
  gloo_waiters& operator=(const gloo_waiters&) = delete;
  ~gloo_waiters() {
    give_up(-1);
    {
      const std::scoped_lock lock(mutex_);
      ends_ = true;
      work_.notify_all();
    }
    threads_.clear();
    ::close(descriptor_);
  }

  /// Takes a transfer that is started.
  void add(link_transfer& one, std::unique_ptr<buffer> memory) {
    const std::scoped_lock lock(mutex_);
    auto& added = channels_[{one.machine, one.channel, one.sends}];
    if (added.empty() && idle_ <= ready_.size()) {
      threads_.emplace_back([this] { run(); });  // first, because it may throw
    }
    added.push_back({&one, std::move(memory)});
    if (added.size() == 1) {
      ready_.push_back(&added);
      work_.notify_one();
    }
  }

  /// Ends the transfers of a machine; -1: of all. The machine's connection has to be closed.
  void give_up(int machine) noexcept {
    std::unique_lock lock(mutex_);
    const auto is_chosen = [&](const auto& entry) {
      return (machine < 0 || std::get<0>(entry.first) == machine) && !entry.second.empty();
    };
    for (auto& entry : channels_) {
      for (auto& running : entry.second) {
        if (is_chosen(entry) && running.memory != nullptr) {
          running.one->sends ? running.memory->abortWaitSend() : running.memory->abortWaitRecv();
        }
      }
    }
    given_up_.wait(lock, [&] { return std::none_of(channels_.begin(), channels_.end(), is_chosen); });
  }

  /// Returns a machine with a transfer that failed; -1: none.
  [[nodiscard]] int failing_machine() const noexcept {
    const std::scoped_lock lock(mutex_);
    return failing_;
  }

  /// A descriptor that is readable where a transfer has ended since `take_news`.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  bool take_news() noexcept {
    std::uint64_t count = 0;
    return ::read(descriptor_, &count, sizeof(count)) > 0;
  }

 private:
  struct transfer {
    link_transfer* one;
    std::unique_ptr<buffer> memory;
  };
  using channel = std::deque<transfer>;

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      ++idle_;
      work_.wait(lock, [&] { return ends_ || !ready_.empty(); });
      --idle_;
      if (ready_.empty()) {
        return;
      }
      channel& served = *ready_.front();
      ready_.pop_front();
      while (!served.empty()) {
        finish_first(served, lock);
      }
    }
  }

  void finish_first(channel& served, std::unique_lock<std::mutex>& lock) {
    transfer& first = served.front();  // stays where it is while others are added
    lock.unlock();
    bool succeeds = false;
    bool is_broken = false;
    try {
      succeeds = first.one->sends ? first.memory->waitSend(forever) : first.memory->waitRecv(forever);
    } catch (const std::exception&) {
      is_broken = true;
    }
    lock.lock();
    link_transfer& one = *first.one;
    failing_ = is_broken ? one.machine : failing_;
    auto memory = std::move(first.memory);
    lock.unlock();
    memory.reset();  // waits until Gloo's own thread lets go of it
    lock.lock();
    served.pop_front();
    one.finish(succeeds);
    const std::uint64_t news = 1;
    [[maybe_unused]] const auto written = ::write(descriptor_, &news, sizeof(news));
    given_up_.notify_all();
  }

  static constexpr std::chrono::milliseconds forever = std::chrono::hours(10'000);  // a time-out breaks all connections

  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable given_up_;
  std::map<std::tuple<int, std::uint64_t, bool>, channel> channels_;
  std::deque<channel*> ready_;  // not empty, and without a thread
  std::size_t idle_ = 0;
  bool ends_ = false;
  int failing_ = -1;
  int descriptor_;
  std::vector<std::jthread> threads_;
};

}  // namespace hfcomm::engines
