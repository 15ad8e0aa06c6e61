// SPDX-License-Identifier: MIT
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <source_location>

#include <hfcomm/collectives/detail/message-inl.hpp>
#include <hfcomm/collectives/probe.hpp>
#include <hfcomm/core/config.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE std::shared_ptr<transfer> make_probe(operation_name name, message_source source, allowed_peer allowed,
                                                   const process_group& group, message_tag tag,
                                                   std::source_location where) {
  auto result = message({.name = name, .where = where}, group, movement::receive, source.rank(),
                        allowed_source(source, allowed), tag);
  result->is_probe = true;
  return result;
}

HFCOMM_INLINE message_info probe_message(message_source source, const process_group& group, message_tag tag,
                                         std::source_location where) {
  const auto looking = make_probe("probe", source, allowed_peer::other_rank, group, tag, where);
  complete_message(group, looking);
  return info_of(*looking);
}

HFCOMM_INLINE std::optional<message_info> try_probe_message(message_source source, const process_group& group,
                                                            message_tag tag, std::source_location where) {
  const auto looking = make_probe("try_probe", source, allowed_peer::any_rank, group, tag, where);
  if (looking->finished.load()) {
    return info_of(*looking);
  }
  const group_guard entered(group, looking->call);
  if (!group_access::engine(group).try_probe(looking)) {
    return std::nullopt;
  }
  if (looking->problem) {
    std::rethrow_exception(std::exchange(looking->problem, nullptr));
  }
  return info_of(*looking);
}

}  // namespace hfcomm::detail
