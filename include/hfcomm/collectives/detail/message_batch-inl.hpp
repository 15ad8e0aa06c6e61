// SPDX-License-Identifier: MIT
#pragma once

#include <exception>
#include <utility>

#include <hfcomm/collectives/message_batch.hpp>
#include <hfcomm/core/config.hpp>

namespace hfcomm {

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

HFCOMM_INLINE message_batch& message_batch::add(std::shared_ptr<engines::transfer> message) {
  messages_.push_back(std::move(message));
  return *this;
}

}  // namespace hfcomm
