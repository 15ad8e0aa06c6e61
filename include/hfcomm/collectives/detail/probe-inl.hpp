// SPDX-License-Identifier: MIT
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <source_location>

#include <hfcomm/collectives/detail/message-inl.hpp>
#include <hfcomm/collectives/probe.hpp>
#include <hfcomm/core/config.hpp>

namespace hfcomm {

namespace detail {

HFCOMM_INLINE std::shared_ptr<transfer> make_probe(operation_name name, message_source source, allowed_peer allowed,
                                                   detail::group_or_tag<message_tag> first,
                                                   detail::group_or_tag<message_tag> second,
                                                   std::source_location where) {
  const auto& [group, tag] = detail::message_place(first, second);
  auto result = message({.name = name, .where = where}, group, movement::receive, source.rank(),
                        allowed_source(source, allowed), tag);
  result->is_probe = true;
  return result;
}

}  // namespace detail

HFCOMM_INLINE message_info probe(message_source source, detail::group_or_tag<message_tag> first,
                                 detail::group_or_tag<message_tag> second, std::source_location where) {
  const auto& [group, tag] = detail::message_place(first, second);
  const auto looking = detail::make_probe("probe", source, detail::allowed_peer::other_rank, group, tag, where);
  detail::complete_message(group, looking);
  return detail::info_of(*looking);
}

HFCOMM_INLINE std::optional<message_info> try_probe(message_source source, detail::group_or_tag<message_tag> first,
                                                    detail::group_or_tag<message_tag> second,
                                                    std::source_location where) {
  const auto& [group, tag] = detail::message_place(first, second);
  const auto looking = detail::make_probe("try_probe", source, detail::allowed_peer::any_rank, group, tag, where);
  if (looking->finished.load()) {
    return detail::info_of(*looking);
  }
  const detail::group_guard entered(group, looking->call);
  if (!detail::group_access::engine(group).try_probe(looking)) {
    return std::nullopt;
  }
  if (looking->problem) {
    std::rethrow_exception(std::exchange(looking->problem, nullptr));
  }
  return detail::info_of(*looking);
}

}  // namespace hfcomm
