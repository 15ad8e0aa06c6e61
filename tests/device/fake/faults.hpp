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

/// Counts the calls of each function, and says which of them are to fail.
class call_book {
 public:
  /// 0, or what the call is to return.
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
  /// What ncclCommGetAsyncError is to say this time instead of the truth; ncclSuccess: the truth.
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

/// Something that hangs on some devices until it is told not to.
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
  /// Waits while it is shut, unless `enough()`, which is asked now and then.
  void pass(int device, const std::function<bool()>& enough = [] { return false; }) {
    std::unique_lock lock(mutex_);
    while ((shut_.contains(device) || shut_.contains(any_device)) && !enough()) {
      ++waiting_;
      changed_.wait_for(lock, std::chrono::milliseconds(1));
      --waiting_;
    }
  }
  /// How many hang here now.
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
