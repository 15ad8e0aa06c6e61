// SPDX-License-Identifier: MIT
#pragma once

namespace hfcomm {

class process_group;

namespace detail {

/// Returns the group that a call names in the place of another argument. Throws usage_error where it names a second
/// one, `behind`, which is the world where there is none.
[[nodiscard]] const process_group& only_group(const process_group& named, const process_group& behind);

/// The base of a parameter that may be left out where the group behind it is given: it takes the group in its place.
class or_group {
 public:
  constexpr or_group() = default;
  constexpr or_group(const process_group& group) noexcept : group_(&group) {}

  /// Returns the group of the call. `behind` is the argument for it.
  [[nodiscard]] const process_group& in(const process_group& behind) const {
    return group_ == nullptr ? behind : only_group(*group_, behind);
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
