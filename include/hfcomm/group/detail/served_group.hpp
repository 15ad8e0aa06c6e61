// SPDX-License-Identifier: MIT
#pragma once

#include <utility>

#include <hfcomm/core/config.hpp>

namespace hfcomm::detail {

class group_state;

/// Returns the group whose asynchronous operation this thread runs; null where it runs none. That operation may use the
/// group.
HFCOMM_INLINE const group_state*& group_being_served() noexcept {
  thread_local const group_state* served = nullptr;
  return served;
}

/// Makes this thread the one that runs an asynchronous operation of `group`, for this object's lifetime.
class served_group {
 public:
  explicit served_group(const group_state& group) : previous_(std::exchange(group_being_served(), &group)) {}
  served_group(const served_group&) = delete;
  served_group& operator=(const served_group&) = delete;
  ~served_group() { group_being_served() = previous_; }

 private:
  const group_state* previous_;
};

}  // namespace hfcomm::detail
