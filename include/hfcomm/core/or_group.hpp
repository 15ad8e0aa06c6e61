// SPDX-License-Identifier: MIT
#pragma once

namespace hfcomm {

class process_group;

namespace detail {

/// Throws usage_error where a call that names a group in the place of another argument names a second one, `behind`,
/// which is the world where there is none.
void check_only_group(const process_group& named, const process_group& behind);

/// The base of a parameter that may be left out where the group behind it is given: it takes the group in its place.
class or_group {
 public:
  constexpr or_group() = default;
  constexpr or_group(const process_group& group) noexcept : group_(&group) {}

  /// Returns the group of the call. `behind` is the argument for it.
  [[nodiscard]] const process_group& in(const process_group& behind) const {
    if (group_ != nullptr) {
      check_only_group(*group_, behind);
    }
    return group_ == nullptr ? behind : *group_;
  }

 private:
  const process_group* group_ = nullptr;
};

/// The parameter for the root of a call, rank 0 where it is left out.
class optional_root : public or_group {
 public:
  constexpr optional_root(int root) noexcept : root_(root) {}
  constexpr optional_root(const process_group& group) noexcept : or_group(group) {}
  [[nodiscard]] constexpr operator int() const noexcept { return root_; }

 private:
  int root_ = 0;
};

}  // namespace detail

}  // namespace hfcomm
