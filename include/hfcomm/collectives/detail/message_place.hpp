// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>

#include <hfcomm/collectives/envelope.hpp>
#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/or_group.hpp>

namespace hfcomm::detail {

/// A parameter behind a message's peer: the group, a tag, or nothing. There are two of them, in any order. Tag is int,
/// or message_tag where a wildcard may stand.
template <class Tag>
class group_or_tag_like : public or_group {
 public:
  using or_group::or_group;
  constexpr group_or_tag_like() = default;
  template <std::convertible_to<Tag> T>
    requires(!std::integral<T>)
  constexpr group_or_tag_like(const T& tag) noexcept : tag_(tag), has_tag_(true) {}
  template <std::integral T>
  constexpr group_or_tag_like(const T& tag) noexcept : tag_(rank_or_tag(tag)), has_tag_(true) {}

  [[nodiscard]] constexpr bool has_tag() const noexcept { return has_tag_; }
  [[nodiscard]] constexpr Tag tag() const noexcept { return tag_; }

 private:
  Tag tag_ = 0;
  bool has_tag_ = false;
};

using group_or_tag = group_or_tag_like<int>;
using group_or_any_tag = group_or_tag_like<message_tag>;

/// Throws usage_error: a message has one tag.
[[noreturn, gnu::cold]] void throw_two_tags(const process_group& group, call_site where);

/// The group and the tag of a message, world() and 0 where they are left out. Throws usage_error where one of them is
/// given twice.
template <class Tag>
struct message_place {
  message_place(const group_or_tag_like<Tag>& first, const group_or_tag_like<Tag>& second, call_site where)
      : group(first.in(second, where)), tag(first.has_tag() ? first.tag() : second.tag()) {
    if (first.has_tag() && second.has_tag()) {
      throw_two_tags(group, where);
    }
  }

  const process_group& group;
  Tag tag;
};

}  // namespace hfcomm::detail
