// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/scopes/on_rank.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE void require_rank(int rank, const process_group& group, std::source_location where) {
  if (rank < 0 || rank >= group.size()) {
    throw_error<usage_error>({group.rank(), group.size(), "on_rank", 0, where},
                             {engines::no_such_rank("rank", rank, group.size())});
  }
}

}  // namespace hfcomm::detail
