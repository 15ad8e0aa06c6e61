// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>

#include <hfcomm/core/call_site.hpp>

namespace hfcomm {

class process_group;

namespace detail {

/// Returns the group that a call names once, or twice; the world where it names none. Throws usage_error where it names
/// two different ones.
[[nodiscard]] const process_group& named_group(const process_group* first, const process_group* second,
                                               call_site where);

/// A parameter for the group of a call, and the base of those that may be left out before it, which take the group in
/// their place. Without a group it stands for the world. It is a view: for parameters only.
class or_group {
 public:
  constexpr or_group() = default;
  constexpr or_group(const process_group& group) noexcept : group_(&group) {}
  template <class G>
    requires(!std::derived_from<G, or_group> && std::convertible_to<const G&, const process_group&>)
  constexpr or_group(const G& group) noexcept : group_(&static_cast<const process_group&>(group)) {}

  /// Returns the group of the call; `behind` is the parameter behind this one.
  [[nodiscard]] const process_group& in(const or_group& behind, call_site where) const {
    return named_group(group_, behind.group_, where);
  }
  /// The same with two parameters behind this one.
  [[nodiscard]] const process_group& in(const or_group& next, const or_group& last, call_site where) const {
    const bool is_named_behind = next.group_ != nullptr || last.group_ != nullptr;
    return in(is_named_behind ? next.in(last, where) : or_group(), where);
  }

 private:
  const process_group* group_ = nullptr;
};

/// Returns a rank or tag as int; -1, which is neither, where it does not fit.
template <std::convertible_to<int> Number>
[[nodiscard]] constexpr int rank_or_tag(const Number& number) noexcept {
  const int result = static_cast<int>(number);
  if constexpr (std::integral<Number>) {
    return static_cast<Number>(result) == number ? result : -1;
  } else {
    return result;
  }
}

/// The parameter for the root of a call, rank 0 where it is left out.
class optional_root : public or_group {
 public:
  using or_group::or_group;
  template <std::convertible_to<int> Root>
  constexpr optional_root(const Root& root) noexcept : root_(rank_or_tag(root)) {}
  [[nodiscard]] constexpr operator int() const noexcept { return root_; }

 private:
  int root_ = 0;
};

}  // namespace detail

}  // namespace hfcomm
