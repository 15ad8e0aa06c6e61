// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>

#include <hfcomm/core/plain.hpp>
#include <hfcomm/serialization/archive.hpp>
#include <hfcomm/serialization/std_parts.hpp>
#include <hfcomm/serialization/std_types.hpp>

namespace hfcomm {

namespace detail {

/// The result of a search for a type that cannot be serialized, where there is none.
struct everything_is_serializable {};

/// Returns cereal's own answer, which is only whether there is a function for T. A container of anything has one, and a
/// class itself is responsible for what it gives to the archive.
template <class T>
consteval bool has_functions() {
  constexpr bool saves = cereal::traits::is_output_serializable<T, output_archive>::value;
  constexpr bool loads = cereal::traits::is_input_serializable<T, input_archive>::value;
  return (saves && loads) || (std::is_empty_v<T> && !saves && !loads);
}

/// True if cereal finds no function for T at all, not even one for a single direction.
template <class T>
inline constexpr bool has_no_functions =
    cereal::traits::detail::count_output_serializers<T, output_archive>::value == 0 &&
    cereal::traits::detail::count_input_serializers<T, input_archive>::value == 0;

/// `Enclosing` is `parts` of the aggregates whose members are being examined. Within them they count as serializable.
template <class T, class Enclosing = parts<>>
struct first_unserializable;

template <class Parts, class Enclosing = parts<>>
struct first_unserializable_part;

template <class Enclosing>
struct first_unserializable_part<parts<>, Enclosing> : std::type_identity<everything_is_serializable> {};

template <class T, class... More, class Enclosing>
struct first_unserializable_part<parts<T, More...>, Enclosing> {
  // Elements are constructed before they are decoded, and moved when a container grows.
  static consteval auto find() {
    using found = typename first_unserializable<T, Enclosing>::type;
    if constexpr (!std::same_as<found, everything_is_serializable>) {
      return std::type_identity<found>{};
    } else if constexpr (!std::default_initializable<T> || !std::move_constructible<T>) {
      return std::type_identity<T>{};
    } else {
      return first_unserializable_part<parts<More...>, Enclosing>{};
    }
  }
  using type = typename decltype(find())::type;
};

/// A container whose allocator has no default constructor. It cannot be made by decoding, whatever constructors it
/// declares.
template <class T>
concept needs_an_allocator =
    requires { typename T::allocator_type; } && !std::default_initializable<typename T::allocator_type>;

template <class T, class Enclosing>
consteval auto find_unserializable() {
  if constexpr (!std::same_as<T, std::remove_cv_t<T>> || is_shared_owner<T>) {
    return std::type_identity<T>{};
  } else if constexpr (plain<T> || std::is_arithmetic_v<T> || std::is_enum_v<T>) {
    return std::type_identity<everything_is_serializable>{};
  } else if constexpr (standard_type<T>) {
    using found = typename first_unserializable_part<typename std_parts<T>::type, Enclosing>::type;
    if constexpr (!std::same_as<found, everything_is_serializable>) {
      return std::type_identity<found>{};
    } else if constexpr (needs_an_allocator<T> || has_null_functions<T>) {
      return std::type_identity<T>{};
    } else {
      return std::type_identity<everything_is_serializable>{};
    }
  } else if constexpr (aggregate_object<T>) {
    using inner = members_within<T, Enclosing>;
    return first_unserializable_part<typename inner::type, typename inner::enclosing>{};
  } else if constexpr (std::is_class_v<T>) {
    return std::type_identity<std::conditional_t<has_functions<T>(), everything_is_serializable, T>>{};
  } else {
    return std::type_identity<T>{};
  }
}

template <class T, class Enclosing>
struct first_unserializable {
  using type = typename decltype(find_unserializable<T, Enclosing>())::type;
};

template <class T, class D, class Enclosing>
struct first_unserializable<std::unique_ptr<T, D>, Enclosing> {
  static consteval auto find() {
    if constexpr (!owns_one_object<std::unique_ptr<T, D>>) {
      return std::type_identity<std::unique_ptr<T, D>>{};
    } else {
      using found = typename first_unserializable<std::remove_const_t<T>, Enclosing>::type;
      if constexpr (std::same_as<found, everything_is_serializable> &&
                    !std::default_initializable<std::remove_const_t<T>>) {
        return std::type_identity<T>{};
      } else {
        return std::type_identity<found>{};
      }
    }
  }
  using type = typename decltype(find())::type;
};

/// The type that keeps T from being serialized: T, or the first type within T that lacks the functions. Compilers name
/// it where they explain an unsatisfied constraint.
template <class T>
using first_unserializable_t = typename first_unserializable<T>::type;

}  // namespace detail

/// A type whose values can be sent as objects:
/// - numbers, bool and enumerations;
/// - the standard library's strings, containers, adaptors, std::pair, tuple, optional, variant, complex, bitset,
///   chrono's durations and time points, std::filesystem::path, and std::unique_ptr with the default deleter to an
///   object that is not polymorphic or final, all of serializable types;
/// - classes with a cereal `serialize`, or `save` and `load`, or their minimal forms, members or not;
/// - empty classes, and what is `plain`;
/// - with <hfcomm/aggregates.hpp>, aggregates without such functions, of all these.
/// It must have a default constructor and be movable, also as an element. Refused are raw pointers, references,
/// std::shared_ptr and std::weak_ptr (bytes from elsewhere could alias objects of different types), and views
/// (std::span, std::string_view), which would have nothing to view after decoding.
///
/// Comparators, hashes and equalities of containers are not sent: a decoded container has its type's default. Refused
/// are containers in which that is a null pointer or an empty std::function.
///
/// A decoded enumeration may have any value of its underlying type, whether there is an enumerator for it or not.
template <class T>
concept serializable = std::is_same_v<detail::first_unserializable_t<T>, detail::everything_is_serializable> &&
                       std::default_initializable<T> && std::movable<T>;

}  // namespace hfcomm
