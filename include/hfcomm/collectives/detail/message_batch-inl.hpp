// SPDX-License-Identifier: MIT
#pragma once

#include <exception>
#include <utility>

#include <hfcomm/collectives/message_batch.hpp>
#include <hfcomm/core/config.hpp>

namespace hfcomm {

HFCOMM_INLINE message_batch::~message_batch() {
  for (const auto& message : messages_) {
    if (message->finished.load()) {
      continue;  // it has failed already
    }
    try {
      const char* const text = "its message_batch was destroyed before it had run";
      if (message->call.pattern == detail::movement::send) {
        detail::send_failure(group_, message->call, text);
      } else {
        detail::refuse_message(group_, message->call, text);
      }
    } catch (...) {
      // The group has a more serious error, which its next operation reports.
    }
  }
}

HFCOMM_INLINE message_batch& message_batch::operator=(message_batch&& other) noexcept {
  std::swap(group_, other.group_);
  std::swap(messages_, other.messages_);
  std::swap(after_, other.after_);
  return *this;
}

HFCOMM_INLINE void message_batch::run() {
  const auto messages = std::exchange(messages_, {});
  const auto after = std::exchange(after_, {});
  if (!messages.empty()) {
    detail::complete_messages(group_, messages);
  }
  std::exception_ptr problem;
  for (const auto& take : after) {
    try {
      take();
    } catch (...) {
      problem = problem ? problem : std::current_exception();
    }
  }
  if (problem) {
    std::rethrow_exception(problem);
  }
}

HFCOMM_INLINE void message_batch::fail(engines::transfer& message) noexcept {
  message.problem = std::current_exception();
  message.finished.store(true);
}

HFCOMM_INLINE message_batch& message_batch::add(std::shared_ptr<engines::transfer> message) {
  messages_.push_back(std::move(message));
  return *this;
}

}  // namespace hfcomm
