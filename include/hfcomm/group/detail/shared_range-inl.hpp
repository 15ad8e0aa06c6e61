// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/group/detail/group_state.hpp>
#include <hfcomm/group/shared_range.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE shared_range share_bytes(std::span<const std::span<std::byte>> buffers, const process_group& group,
                                       std::source_location where) {
  if (group.size() == 1) {
    return {};  // there is nobody to share it with
  }
  return shared_range(group_access::engine(group).share(buffers, {group.rank(), group.size(), "share", 0, where}));
}

}  // namespace hfcomm::detail
