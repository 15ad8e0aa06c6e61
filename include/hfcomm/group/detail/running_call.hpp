// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hfcomm/group/detail/checked_call.hpp>
#include <hfcomm/group/process_group.hpp>

namespace hfcomm::detail {

/// Which group's asynchronous operation this thread is running, if any: to that, the group is not closed.
inline const group_state*& group_being_served() noexcept {
  thread_local const group_state* served = nullptr;
  return served;
}
class served_group {
 public:
  explicit served_group(const group_state& group) : before_(std::exchange(group_being_served(), &group)) {}
  served_group(const served_group&) = delete;
  served_group& operator=(const served_group&) = delete;
  ~served_group() { group_being_served() = before_; }

 private:
  const group_state* before_;
};

/// Holds a group against a second thread. Throws usage_error where there is one, and inside a section in which nobody
/// could answer.
class group_guard {
 public:
  group_guard(const process_group& group, const operation& call)
      : state_(group_access::state(group)), served_(group_being_served() == &state_) {
    if (served_) {
      if (state_.served_busy) {
        throw usage_error(context_of(group, call),
                          "called inside an operation of this group, by a callable or an object of it");
      }
      state_.served_busy = true;
      return;
    }
    if (state_.busy.exchange(true, std::memory_order_acquire)) {
      throw usage_error(
          context_of(group, call),
          "another thread is inside an operation of this group; give each thread a group of its own (split)");
    }
    if (state_.master_sections.load(std::memory_order_relaxed) != 0) [[unlikely]] {
      state_.busy.store(false, std::memory_order_release);
      throw usage_error(
          context_of(group, call),
          "called inside a master-first section: the other ranks wait for the section to end and cannot answer");
    }
  }
  group_guard(const group_guard&) = delete;
  group_guard& operator=(const group_guard&) = delete;
  ~group_guard() {
    if (served_) {
      state_.served_busy = false;
    } else {
      state_.busy.store(false, std::memory_order_release);
    }
  }

  /// Waits for the asynchronous operations that were started before.
  void drain() {
    if (!served_ && state_.queue) [[unlikely]] {
      state_.queue->drain();
    }
  }

 private:
  group_state& state_;
  bool served_;
};

/// One collective on one group, from the moment the caller enters: holds the group against a second thread, and knows
/// how to fail so that the other ranks learn of it. Where an exception ends the call before the engine has it, the
/// destructor tells them.
class running_call final : public checked_call {
 public:
  running_call(const process_group& group, operation& call)
      : checked_call(group, call), state_(group_access::state(group)), guard_(group, call) {
    guard_.drain();
    call_.timeout = group.timeout();
    if (group.tag() != 0 && call_.tag == 0 && call_.op != reduce_kind::premultiplied_sum) {
      call_.tag = group.tag();
    }
    number_ = state_.engine->sequence() + 1;
    if (state_.has_deferred.load(std::memory_order_relaxed)) [[unlikely]] {
      throw_deferred();
    }
  }
  running_call(const running_call&) = delete;
  running_call& operator=(const running_call&) = delete;
  ~running_call() {
    if (!begun_) {
      reject("an exception ended its part before that began");
    }
    if (state_.devices && state_.engine->broken()) [[unlikely]] {
      state_.devices->abort();  // its kernels wait for ranks that will not come
    }
    trim(state_.scratch);
    trim(state_.objects);
  }

  /// For the operation itself: from here on its failures are the engine's to tell.
  [[nodiscard]] host_engine& engine() noexcept {
    begun_ = true;
    return *state_.engine;
  }
  [[nodiscard]] std::vector<std::byte>& scratch() noexcept { return state_.scratch; }
  /// Scratch memory of the kind that the engine likes best; to be asked for memory only once the engine has let this
  /// operation begin.
  [[nodiscard]] std::pmr::vector<std::byte>& objects() noexcept { return state_.objects; }
  void reject(const std::string& text) noexcept override {
    try {
      engine().announce(call_, &text);
    } catch (...) {
      // The group has a worse problem, which its next operation reports; the caller's own error comes first.
    }
  }

  /// `work()`; where it throws, the others are told what.
  template <class Work>
  auto attempt(std::string_view what, Work&& work) {
    try {
      return std::forward<Work>(work)();
    } catch (...) {
      reject(std::string(what) + current_exception_text());
      throw;
    }
  }

 private:
  template <class Bytes>
  static void trim(Bytes& bytes) noexcept {
    if (bytes.capacity() > group_state::kept_scratch_bytes) [[unlikely]] {
      Bytes(bytes.get_allocator()).swap(bytes);
    }
  }

  group_state& state_;
  group_guard guard_;
  bool begun_ = false;
};

}  // namespace hfcomm::detail
