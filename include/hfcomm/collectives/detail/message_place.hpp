// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>

#include <hfcomm/collectives/envelope.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/or_group.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm::detail {

/// A parameter behind a message's peer: the group, a tag, or nothing. There are two of them, in any order. Tag is int,
/// or message_tag where a wildcard may stand.
template <class Tag>
class group_or_tag_like : public or_group {
 public:
  constexpr group_or_tag_like() = default;
  constexpr group_or_tag_like(const process_group& group) noexcept : or_group(group) {}
  template <std::convertible_to<Tag> T>
  constexpr group_or_tag_like(const T& tag) noexcept : tag_(tag), has_tag_(true) {}

  [[nodiscard]] constexpr bool has_tag() const noexcept { return has_tag_; }
  [[nodiscard]] constexpr Tag tag() const noexcept { return tag_; }

 private:
  Tag tag_ = 0;
  bool has_tag_ = false;
};

using group_or_tag = group_or_tag_like<int>;
using group_or_any_tag = group_or_tag_like<message_tag>;

/// Throws usage_error: a message has one tag.
[[noreturn, gnu::cold]] void throw_two_tags();

/// The group and the tag of a message, world() and 0 where they are left out. Throws usage_error where one of them is
/// given twice.
template <class Tag>
struct message_place {
  message_place(const group_or_tag_like<Tag>& first, const group_or_tag_like<Tag>& second)
      : group(first.in(second.in(world()))), tag(first.has_tag() ? first.tag() : second.tag()) {
    if (first.has_tag() && second.has_tag()) {
      throw_two_tags();
    }
  }

  const process_group& group;
  Tag tag;
};

}  // namespace hfcomm::detail
