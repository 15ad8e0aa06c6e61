// SPDX-License-Identifier: MIT
#pragma once

#include <exception>
#include <string>
#include <utility>

#include <hfcomm/collectives/message_batch.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/group/detail/group_state.hpp>

namespace hfcomm {

HFCOMM_INLINE message_batch::~message_batch() {
  for (const auto& message : messages_) {
    if (message->finished.load()) {
      continue;  // it has failed already
    }
    try {
      if (message->is_failure) {
        detail::group_access::engine(group_).post({&message, 1});
        continue;
      }
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
  std::swap(problem_, other.problem_);
  return *this;
}

HFCOMM_INLINE void message_batch::run() {
  const auto messages = std::exchange(messages_, {});
  const auto after = std::exchange(after_, {});
  std::exception_ptr problem = std::exchange(problem_, nullptr);
  if (!messages.empty()) {
    try {
      detail::complete_messages(group_, messages);
    } catch (...) {
      std::rethrow_exception(problem ? problem : std::current_exception());
    }
  }
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

HFCOMM_INLINE message_batch& message_batch::add_failure(const engines::transfer& message) {
  problem_ = problem_ ? problem_ : std::current_exception();
  const std::string text = detail::encoding_failure_text(message.call);
  return message.finished.load() ? *this : add(detail::failed_message_to_send(message.call, text));
}

HFCOMM_INLINE message_batch& message_batch::add(std::shared_ptr<engines::transfer> message) {
  messages_.push_back(std::move(message));
  return *this;
}

}  // namespace hfcomm
