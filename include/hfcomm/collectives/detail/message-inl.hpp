// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include <hfcomm/collectives/detail/message.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/engine/transfer.hpp>
#include <hfcomm/group/detail/group_state.hpp>
#include <hfcomm/group/detail/work-inl.hpp>

namespace hfcomm::detail {

/// The state of a message, which whoever waits for it may have to move on.
class message_state final : public group_work_state {
 public:
  message_state(const process_group& group, const std::shared_ptr<transfer>& message)
      : group_work_state(message->call, group), engine_(group_access::engine(group)), message_(message) {}

 protected:
  void check_may_wait() override {
    if (const auto still = message_.lock()) {
      engine_.complete({&still, 1});
    }
  }

 private:
  host_engine& engine_;
  std::weak_ptr<transfer> message_;
};

HFCOMM_INLINE std::shared_ptr<work_state> make_message_state(const process_group& group,
                                                             const std::shared_ptr<transfer>& message) {
  return std::make_shared<message_state>(group, message);
}

}  // namespace hfcomm::detail
