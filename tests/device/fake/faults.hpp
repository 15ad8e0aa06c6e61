// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <nccl.h>

namespace fake_cuda {

inline constexpr int any_device = -1;

/// Counts the calls of each function, and makes planned calls fail.
class call_book {
 public:
  /// Counts a call and returns its planned result; 0 where none is planned.
  [[nodiscard]] int enter(const char* name, int device) {
    const std::scoped_lock lock(mutex_);
    ++calls_[name];
    int code = 0;
    for (auto& fault : faults_) {
      if (fault.name == name && (fault.device == any_device || fault.device == device) && fault.left > 0 &&
          --fault.left == 0) {
        code = fault.code;
      }
    }
    return code;
  }
  void fail(const std::string& name, std::uint64_t nth, int code, int device) {
    const std::scoped_lock lock(mutex_);
    faults_.push_back({name, device, std::max<std::uint64_t>(nth, 1), code});
  }
  [[nodiscard]] std::uint64_t calls(const std::string& name) const {
    const std::scoped_lock lock(mutex_);
    const auto found = calls_.find(name);
    return found == calls_.end() ? 0 : found->second;
  }

  void fail_async(std::uint64_t polls, ncclResult_t result, int device) {
    const std::scoped_lock lock(mutex_);
    async_.push_back({{}, device, polls, result});
  }
  /// Returns the planned result of an ncclCommGetAsyncError, or ncclSuccess where none is planned.
  [[nodiscard]] ncclResult_t poll(int device) {
    const std::scoped_lock lock(mutex_);
    auto result = ncclSuccess;
    for (auto& fault : async_) {
      if (fault.device == any_device || fault.device == device) {
        if (fault.left == 0) {
          result = static_cast<ncclResult_t>(fault.code);
        } else {
          --fault.left;
        }
      }
    }
    return result;
  }

 private:
  struct planned_fault {
    std::string name;
    int device;
    std::uint64_t left;
    int code;
  };

  mutable std::mutex mutex_;
  std::map<std::string, std::uint64_t> calls_;
  std::vector<planned_fault> faults_;
  std::vector<planned_fault> async_;
};

/// A place where calls on some devices hang until it is opened.
class gate {
 public:
  void shut(int device) {
    const std::scoped_lock lock(mutex_);
    shut_.insert(device);
  }
  void open() {
    const std::scoped_lock lock(mutex_);
    shut_.clear();
    changed_.notify_all();
  }
  [[nodiscard]] bool is_shut(int device) const {
    const std::scoped_lock lock(mutex_);
    return shut_.contains(device) || shut_.contains(any_device);
  }
  /// Waits while the gate is shut for the device, unless `has_ended()`, which is polled.
  void wait_while_shut(int device, const std::function<bool()>& has_ended = [] { return false; }) {
    std::unique_lock lock(mutex_);
    while ((shut_.contains(device) || shut_.contains(any_device)) && !has_ended()) {
      ++waiting_;
      changed_.wait_for(lock, std::chrono::milliseconds(1));
      --waiting_;
    }
  }
  /// Returns the number of threads that wait here now.
  [[nodiscard]] int waiting() const {
    const std::scoped_lock lock(mutex_);
    return waiting_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::set<int> shut_;
  int waiting_ = 0;
};

}  // namespace fake_cuda
