// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/host_engine.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/group/detail/checked_call.hpp>
#include <hfcomm/group/detail/deferred_errors.hpp>
#include <hfcomm/group/process_group.hpp>

namespace hfcomm::detail {

/// Reserves a group for this thread. Throws usage_error where another thread is inside an operation of it, and inside a
/// section in which no other rank could answer. An asynchronous operation may use the group that it runs for.
class group_guard {
 public:
  group_guard(const process_group& group, const operation& call);
  group_guard(const group_guard&) = delete;
  group_guard& operator=(const group_guard&) = delete;
  ~group_guard();

  /// Waits for the asynchronous operations that were started before.
  void drain();

 private:
  group_state& state_;
  bool served_;
};

/// One collective on one group, from the moment the caller enters: reserves the group for this thread, and knows how to
/// fail so that the other ranks learn of it. Where an exception ends the call before the engine has it, the destructor
/// tells them.
class running_call final : public checked_call {
 public:
  running_call(const process_group& group, operation& call);
  running_call(const running_call&) = delete;
  running_call& operator=(const running_call&) = delete;
  ~running_call();

  /// For the operation itself: from here on its failures are the engine's to tell.
  [[nodiscard]] host_engine& engine() noexcept {
    begun_ = true;
    return engine_;
  }
  [[nodiscard]] std::vector<std::byte>& scratch() noexcept;
  /// Memory for encoded objects, of the engine's kind. It allocates only once the engine has let this operation begin.
  [[nodiscard]] std::pmr::vector<std::byte>& objects();
  void reject(const std::string& text) noexcept override;

  /// Returns `work()`; where that throws, the other ranks are told what, after the words `what`.
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
  group_state& state_;
  group_guard guard_;
  host_engine& engine_;
  bool begun_ = false;
};

}  // namespace hfcomm::detail
