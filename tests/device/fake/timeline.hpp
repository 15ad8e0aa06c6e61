// SPDX-License-Identifier: MIT
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

namespace fake_cuda {

/// The progress of a stream. Its pieces of work are numbered from 1, in the order in which they were put on the stream.
class timeline {
 public:
  [[nodiscard]] std::uint64_t submit() {
    const std::scoped_lock lock(mutex_);
    return ++submitted_;
  }
  void complete() {
    const std::scoped_lock lock(mutex_);
    ++completed_;
    changed_.notify_all();
  }
  [[nodiscard]] std::uint64_t submitted() const {
    const std::scoped_lock lock(mutex_);
    return submitted_;
  }
  [[nodiscard]] bool reached(std::uint64_t position) const {
    const std::scoped_lock lock(mutex_);
    return completed_ >= position;
  }
  void wait_for(std::uint64_t position) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return completed_ >= position; });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t submitted_ = 0;
  std::uint64_t completed_ = 0;
};

/// The end of one piece of work. It may outlive the stream.
struct moment {
  std::shared_ptr<timeline> line{};
  std::uint64_t position = 0;

  [[nodiscard]] bool reached() const { return line == nullptr || line->reached(position); }
  void wait() const {
    if (line != nullptr) {
      line->wait_for(position);
    }
  }
};

}  // namespace fake_cuda
