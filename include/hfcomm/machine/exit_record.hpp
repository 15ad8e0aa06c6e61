// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include <sys/wait.h>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/std_algorithm.hpp>

/// How processes end, and what they leave in shared memory about it.
namespace hfcomm::rendezvous {

/// The text of a failure in shared memory, which one process writes once and others read.
struct failure_text {
  static constexpr std::size_t capacity = 1008;

  std::atomic<std::uint32_t> state{0};  // 0 empty, 1 being written, 2 complete
  char text[capacity]{};

  void write(std::string_view why) noexcept {
    std::uint32_t nothing = 0;
    if (state.compare_exchange_strong(nothing, 1)) {
      const auto length = std::min(why.size(), capacity - 1);
      std::memcpy(text, why.data(), length);
      text[length] = '\0';
      state.store(2);
    }
  }
  [[nodiscard]] std::optional<std::string> read() const {
    return state.load() == 2 ? std::optional<std::string>(std::string(text)) : std::nullopt;
  }
};

/// The end of a child of launch(). Only the parent learns it, so it writes the record for the other children.
struct exit_record {
  std::atomic<std::int32_t> ended{0};
  std::atomic<std::int32_t> wait_status{0};
  std::atomic<std::int32_t> reported_status{-1};    // exit status that the rank itself announced
  std::atomic<std::int32_t> because_of_another{0};  // 1: it failed because another rank had failed
  failure_text failure;                             // the text of the exception that ended the rank
  failure_text last_call;                           // as another rank saw it after the end
};

/// This process as a child of launch().
struct launched_process {
  exit_record* table = nullptr;  ///< Shared with the other children, in rank order; null in any other process.
  std::int32_t rank = -1;
  std::int32_t parent = 0;  ///< The number of the process that launched it.
};

HFCOMM_PROCESS_STATE inline launched_process& own_launch() noexcept {
  static launched_process own;
  return own;
}

[[gnu::cold]] inline std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return detail::concat({"signal ", number, name != nullptr ? detail::concat({" (SIG", name, ")"}) : std::string()});
}

inline std::string describe_wait_status(int status) {
  if (WIFSIGNALED(status)) {
    return detail::concat({"was killed by ", signal_name(WTERMSIG(status))});
  }
  return detail::concat({"exited with status ", WEXITSTATUS(status), " without ending its session"});
}

}  // namespace hfcomm::rendezvous
