// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <hfcomm/core/element_type.hpp>
#include <hfcomm/core/or_group.hpp>

namespace hfcomm {

/// The kind of a reduction: how it combines two values.
enum class reduce_kind : std::uint8_t {
  sum,      ///< Integers wrap around, as unsigned arithmetic does.
  product,  ///< Integers wrap around. Complex: (ac - bd, ad + bc), which does not recover infinities from NaNs.
  min,      ///< `b < a ? b : a`, where a has lower ranks: a NaN in a stays and hides b, one in b does not win.
  max,      ///< `a < b ? b : a`. Complex numbers have neither minimum nor maximum.
  average,  ///< The sum divided by the group's size; floating-point and complex types only.
  bit_and,  ///< Integers only, as are the next two.
  bit_or,   ///< Bits that any rank has.
  bit_xor,  ///< Bits that an odd number of ranks has.
  premultiplied_sum,  ///< The sum of each rank's values times that rank's factor; types as for an average.
  logical_and,        ///< 1 where the values of all ranks are other than zero, else 0; for all types but complex ones.
  logical_or,         ///< The same where the value of any rank is. A NaN is other than zero, -0.0 is not.
};

[[nodiscard]] constexpr std::string_view to_string(reduce_kind kind) noexcept {
  switch (kind) {
    case reduce_kind::sum: return "sum";
    case reduce_kind::product: return "product";
    case reduce_kind::min: return "min";
    case reduce_kind::max: return "max";
    case reduce_kind::average: return "average";
    case reduce_kind::bit_and: return "bitwise and";
    case reduce_kind::bit_or: return "bitwise or";
    case reduce_kind::bit_xor: return "bitwise xor";
    case reduce_kind::premultiplied_sum: return "premultiplied sum";
    case reduce_kind::logical_and: return "logical and";
    case reduce_kind::logical_or: return "logical or";
  }
  return "unknown reduce_kind";
}

namespace detail {

[[nodiscard]] constexpr bool is_logical(reduce_kind kind) noexcept {
  return kind == reduce_kind::logical_and || kind == reduce_kind::logical_or;
}

}  // namespace detail

/// A reduction whose kind is known while compiling, so that a kind that the elements do not have does not compile. The
/// constants of `reduce_op` are of these types.
template <reduce_kind Kind>
class typed_reduce_op {
 public:
  [[nodiscard]] constexpr operator reduce_kind() const noexcept { return Kind; }

  /// Combines two bools, which have no element type: for them a logical reduction is a callable.
  template <std::same_as<bool> Bool>
    requires(detail::is_logical(Kind))
  [[nodiscard]] constexpr Bool operator()(Bool a, Bool b) const noexcept {
    return Kind == reduce_kind::logical_and ? a && b : a || b;
  }
};

/// A premultiplied sum and its factor: see `reduce_op::premultiplied_sum`.
template <>
class typed_reduce_op<reduce_kind::premultiplied_sum> {
 public:
  explicit constexpr typed_reduce_op(double factor) noexcept : factor_(factor) {}
  [[nodiscard]] constexpr double factor() const noexcept { return factor_; }

 private:
  double factor_;
};

/// A reduction of the ranks' values. On the host, they are combined in the order of one binary tree over the ranks:
/// ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)); of n ranks, those below the largest power of two that is less than n come
/// first. Floats of 16 and 8 bits are accumulated in float32 and rounded once. So every rank gets the same bits, on
/// every run, wherever the ranks are. On devices the order is NCCL's.
///
/// `reduce_op::sum` and the other constants each have a type of their own and convert to `reduce_op`: given to a
/// collective they are checked against the elements' type while compiling; a `reduce_op` object may hold any of them
/// and is checked when the collective runs (usage_error). Where several of them need one type, name it:
/// `std::array<reduce_op, 2>{reduce_op::min, reduce_op::max}`, `maximal ? reduce_op{reduce_op::max} : reduce_op::min`.
class reduce_op {
 public:
  static constexpr typed_reduce_op<reduce_kind::sum> sum{};
  static constexpr typed_reduce_op<reduce_kind::product> product{};
  static constexpr typed_reduce_op<reduce_kind::min> min{};
  static constexpr typed_reduce_op<reduce_kind::max> max{};
  static constexpr typed_reduce_op<reduce_kind::average> average{};
  static constexpr typed_reduce_op<reduce_kind::bit_and> bit_and{};
  static constexpr typed_reduce_op<reduce_kind::bit_or> bit_or{};
  static constexpr typed_reduce_op<reduce_kind::bit_xor> bit_xor{};
  static constexpr typed_reduce_op<reduce_kind::logical_and> logical_and{};
  static constexpr typed_reduce_op<reduce_kind::logical_or> logical_or{};

  /// Each rank's values are multiplied by that rank's `factor`, then added up; the ranks' factors may differ. The
  /// factor is rounded to the type that is calculated in (float for 16-bit floats), the product once to the same type;
  /// no product and sum are fused into one rounding. A NaN factor is a usage_error of the operation; infinities are
  /// not. (torch's and NCCL's PREMUL_SUM.)
  [[nodiscard]] static constexpr typed_reduce_op<reduce_kind::premultiplied_sum> premultiplied_sum(
      double factor) noexcept {
    return typed_reduce_op<reduce_kind::premultiplied_sum>(factor);
  }

  // Implicit, so that a call needs only the constant.
  template <reduce_kind Kind>
  constexpr reduce_op(typed_reduce_op<Kind> op) noexcept : kind_(Kind) {
    if constexpr (Kind == reduce_kind::premultiplied_sum) {
      factor_ = op.factor();
    }
  }
  /// Makes a reduction of a kind that is known at run time. A premultiplied sum made this way has the factor 1.
  explicit constexpr reduce_op(reduce_kind kind) noexcept : kind_(kind) {}

  [[nodiscard]] constexpr reduce_kind kind() const noexcept { return kind_; }
  /// Returns this rank's factor of a premultiplied sum; 1 for every other kind.
  [[nodiscard]] constexpr double factor() const noexcept { return factor_; }

  [[nodiscard]] friend constexpr bool operator==(const reduce_op&, const reduce_op&) noexcept = default;

 private:
  reduce_kind kind_;
  double factor_ = 1;
};

template <reduce_kind Left, reduce_kind Right>
[[nodiscard]] constexpr bool operator==(typed_reduce_op<Left> left, typed_reduce_op<Right> right) noexcept {
  return reduce_op(left) == reduce_op(right);
}

[[nodiscard]] constexpr std::string_view to_string(const reduce_op& op) noexcept { return to_string(op.kind()); }

template <reduce_kind Kind>
[[nodiscard]] constexpr std::string_view to_string(typed_reduce_op<Kind> /*op*/) noexcept {
  return to_string(Kind);
}

namespace detail {

[[nodiscard]] constexpr bool needs_floating_point(reduce_kind kind) noexcept {
  return kind == reduce_kind::average || kind == reduce_kind::premultiplied_sum;
}

[[nodiscard]] constexpr bool needs_integers(reduce_kind kind) noexcept {
  return kind >= reduce_kind::bit_and && kind <= reduce_kind::bit_xor;
}

[[nodiscard]] constexpr bool needs_order(reduce_kind kind) noexcept {
  return kind == reduce_kind::min || kind == reduce_kind::max;
}

/// Returns whether elements of this type can be reduced by this kind. False for `none`, and for values outside the
/// enums, which a peer may send.
[[nodiscard]] constexpr bool valid(reduce_kind kind, element_type type) noexcept {
  if (kind > reduce_kind::logical_or || type == element_type::none || type > last_element_type) {
    return false;
  }
  if (is_complex(type)) {
    return !needs_integers(kind) && !needs_order(kind) && !is_logical(kind);
  }
  return is_floating_point(type) ? !needs_integers(kind) : !needs_floating_point(kind);
}

/// The same for elements of type T; void, which is not known while compiling, may have all.
template <reduce_kind Kind, class T>
inline constexpr bool valid_for = valid(Kind, element_type_of<T>);
template <reduce_kind Kind>
inline constexpr bool valid_for<Kind, void> = true;

}  // namespace detail

/// The parameter type of collectives on elements of type T. It takes any `reduce_op` that is known at run time only,
/// and the constants that are defined for T. In its place it takes the group, and is a sum then. It is for
/// parameters only, because it views that group.
template <class T>
class reduction : public detail::or_group {
 public:
  constexpr reduction(const process_group& group, reduce_op otherwise = reduce_op::sum) noexcept
      : or_group(group), op_(otherwise) {}
  constexpr reduction(reduce_op op) noexcept : op_(op) {}

  template <reduce_kind Kind>
    requires(detail::valid_for<Kind, T>)
  constexpr reduction(typed_reduce_op<Kind> op) noexcept : op_(op) {}

  // Compilers show the line of a deleted function that was called.
  template <reduce_kind Kind>
    requires(!detail::valid_for<Kind, T> && detail::needs_floating_point(Kind))
  reduction(typed_reduce_op<Kind>) = delete;  // an average or premultiplied sum needs floating-point elements
  template <reduce_kind Kind>
    requires(!detail::valid_for<Kind, T> && detail::needs_integers(Kind))
  reduction(typed_reduce_op<Kind>) = delete;  // a bitwise reduction needs integer elements
  template <reduce_kind Kind>
    requires(!detail::valid_for<Kind, T> && detail::needs_order(Kind))
  reduction(typed_reduce_op<Kind>) = delete;  // complex numbers have no order, so no minimum or maximum
  template <reduce_kind Kind>
    requires(!detail::valid_for<Kind, T> && detail::is_logical(Kind))
  reduction(typed_reduce_op<Kind>) = delete;  // complex numbers are neither true nor false, so no logical reduction

  [[nodiscard]] constexpr operator reduce_op() const noexcept { return op_; }

 private:
  reduce_op op_;
};

namespace detail {

/// For parameters: T is deduced from the other arguments, and the reduction converts to it.
template <class T>
using op_for = reduction<std::type_identity_t<T>>;

/// The parameter type of reductions of elements whose type is not known while compiling.
using any_reduction = reduction<void>;

/// A parameter like Reduction. It is an average where the group is in its place or, if MayBeRoot, the root.
template <class Reduction, bool MayBeRoot = false>
class average_or : public Reduction {
  static constexpr bool has_average = std::is_constructible_v<Reduction, typed_reduce_op<reduce_kind::average>>;

 public:
  using Reduction::Reduction;
  constexpr average_or(const process_group& group) noexcept
    requires has_average
      : Reduction(group, reduce_op::average) {}
  constexpr average_or(int root) noexcept
    requires(MayBeRoot && has_average)
      : Reduction(reduce_op(reduce_op::average)), root_(root), has_root_(true) {}
  // Compilers show this line.
  average_or(const process_group& group)  // an average needs floating-point elements: name the operation first
    requires(!has_average)
  = delete;

  /// Returns the root of the call. `behind` is the argument for it.
  [[nodiscard]] constexpr int root_or(int behind) const noexcept
    requires MayBeRoot
  {
    return has_root_ ? root_ : behind;
  }

 private:
  int root_ = 0;
  bool has_root_ = false;
};

}  // namespace detail

}  // namespace hfcomm
