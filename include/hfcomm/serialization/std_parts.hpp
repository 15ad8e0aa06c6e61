// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>

#include <hfcomm/core/plain.hpp>
#include <hfcomm/core/std_template.hpp>
#include <hfcomm/serialization/type_name.hpp>

/// The standard types that the archives know, and the types that their values consist of. They are recognized by name.
namespace hfcomm::detail {

template <class... Ts>
struct parts {};

/// An aggregate that <hfcomm/aggregates.hpp> sends member by member.
template <class T>
concept aggregate_object = requires { typename aggregate_traits<T>::members; };

/// The members' types of an aggregate within others; none where it contains itself, because they are being examined.
/// `enclosing` is what its members are within.
template <class T, class Enclosing>
struct members_within;
template <class T, class... Enclosing>
struct members_within<T, parts<Enclosing...>> {
  using type =
      std::conditional_t<(std::is_same_v<T, Enclosing> || ...), parts<>, typename aggregate_traits<T>::members>;
  using enclosing = parts<T, Enclosing...>;
};

/// Standard types with the same functions.
enum class std_kind : std::uint8_t {
  none,
  array,
  bitset,
  block,  ///< Contiguous elements: std::vector and std::basic_string.
  list,   ///< Elements that are added at the end.
  forward_list,
  valarray,
  set,
  map,
  adaptor,  ///< std::queue and std::stack.
  priority_queue,
  product,  ///< std::pair and std::tuple.
  variant,
  optional,
  complex,
  duration,
  time_point,
  unique_ptr,
  path,
};

/// True for std::filesystem::path.
template <class T>
inline constexpr bool is_path = false;
template <class T>
  requires requires { typename T::string_type; }
inline constexpr bool is_path<T> = type_name<T>() == "std::filesystem::path";

consteval std_kind kind_of_template(std::string_view name) {
  struct entry {
    std::string_view name;
    std_kind kind;
  };
  constexpr entry known[] = {{"vector", std_kind::block},
                             {"basic_string", std_kind::block},
                             {"map", std_kind::map},
                             {"unordered_map", std_kind::map},
                             {"pair", std_kind::product},
                             {"tuple", std_kind::product},
                             {"optional", std_kind::optional},
                             {"unique_ptr", std_kind::unique_ptr},
                             {"set", std_kind::set},
                             {"unordered_set", std_kind::set},
                             {"variant", std_kind::variant},
                             {"complex", std_kind::complex},
                             {"chrono::duration", std_kind::duration},
                             {"chrono::time_point", std_kind::time_point},
                             {"deque", std_kind::list},
                             {"list", std_kind::list},
                             {"forward_list", std_kind::forward_list},
                             {"valarray", std_kind::valarray},
                             {"multimap", std_kind::map},
                             {"unordered_multimap", std_kind::map},
                             {"multiset", std_kind::set},
                             {"unordered_multiset", std_kind::set},
                             {"queue", std_kind::adaptor},
                             {"stack", std_kind::adaptor},
                             {"priority_queue", std_kind::priority_queue}};
  for (const entry& one : known) {
    if (one.name == name) {
      return one.kind;
    }
  }
  return std_kind::none;
}

template <template <class...> class C>
inline constexpr std_kind kind_of_std_template = kind_of_template(std_template_name<C>);

template <class T>
inline constexpr std_kind std_kind_of = is_path<T> ? std_kind::path : std_kind::none;
template <template <class...> class C, class... Ts>
inline constexpr std_kind std_kind_of<C<Ts...>> = kind_of_std_template<C>;
template <template <std::size_t> class C, std::size_t n>
inline constexpr std_kind std_kind_of<C<n>> =
    std_value_template_name<C> == "bitset" ? std_kind::bitset : std_kind::none;
template <class T, std::size_t n>
inline constexpr std_kind std_kind_of<std::array<T, n>> = std_kind::array;

/// A standard type whose values can be sent, if its parts can.
template <class T>
concept standard_type = std_kind_of<T> != std_kind::none;

template <std_kind kind>
inline constexpr bool holds_all_arguments = kind == std_kind::product || kind == std_kind::variant;

/// `type` is `parts` of the types that a value of T holds.
template <class T>
struct std_parts;
template <class T, std::size_t n>
struct std_parts<std::array<T, n>> : std::type_identity<parts<T>> {};
template <template <std::size_t> class C, std::size_t n>
struct std_parts<C<n>> : std::type_identity<parts<>> {};
template <template <class...> class C, class T, class... More>
  requires(!holds_all_arguments<kind_of_std_template<C>>)
struct std_parts<C<T, More...>> : std::type_identity<parts<T>> {};
template <template <class...> class C, class... Ts>
  requires(holds_all_arguments<kind_of_std_template<C>>)
struct std_parts<C<Ts...>> : std::type_identity<parts<Ts...>> {};
template <template <class...> class C, class K, class V, class... More>
  requires(kind_of_std_template<C> == std_kind::map)
struct std_parts<C<K, V, More...>> : std::type_identity<parts<K, V>> {};
template <template <class...> class C, class T, class Container>
  requires(kind_of_std_template<C> == std_kind::adaptor)
struct std_parts<C<T, Container>> : std::type_identity<parts<Container>> {};
template <template <class...> class C, class T, class Container, class Compare>
  requires(kind_of_std_template<C> == std_kind::priority_queue)
struct std_parts<C<T, Container, Compare>> : std::type_identity<parts<Compare, Container>> {};
template <template <class...> class C, class Clock, class Duration>
  requires(kind_of_std_template<C> == std_kind::time_point)
struct std_parts<C<Clock, Duration>> : std::type_identity<parts<Duration>> {};
template <class T>
  requires is_path<T>
struct std_parts<T> : std::type_identity<parts<>> {};
// The object that a unique_ptr points to is not checked as a part: it may be const and need not be movable.
template <class T, class D>
struct std_parts<std::unique_ptr<T, D>> : std::type_identity<parts<>> {};

template <class F>
inline constexpr bool is_null_by_default = std::is_pointer_v<F>;
template <template <class...> class C, class Signature>
inline constexpr bool is_null_by_default<C<Signature>> = std_template_name<C> == "function";

/// True for a set or map with a pointer or a std::function as its comparator, hash or equality. It would be null in a
/// decoded container, which needs it to insert its elements.
template <class T>
inline constexpr bool has_null_functions = false;
template <template <class...> class C, class K, class... More>
  requires(kind_of_std_template<C> == std_kind::set)
inline constexpr bool has_null_functions<C<K, More...>> = (is_null_by_default<More> || ...);
template <template <class...> class C, class K, class V, class... More>
  requires(kind_of_std_template<C> == std_kind::map)
inline constexpr bool has_null_functions<C<K, V, More...>> = (is_null_by_default<More> || ...);

/// True if values of T are saved by functions that cereal finds, or hold such values. Where this is false, no archive
/// of cereal's is made, whose tables of pointers and versions cost more compile time than the rest.
template <class T, class Enclosing = parts<>>
inline constexpr bool goes_by_cereal = !plain<T> && !std::is_arithmetic_v<T>;
template <class... Ts, class Enclosing>
inline constexpr bool goes_by_cereal<parts<Ts...>, Enclosing> = (goes_by_cereal<Ts, Enclosing> || ...);
template <standard_type T, class Enclosing>
inline constexpr bool goes_by_cereal<T, Enclosing> =
    !plain<T> && goes_by_cereal<typename std_parts<T>::type, Enclosing>;
template <class T, class D, class Enclosing>
inline constexpr bool goes_by_cereal<std::unique_ptr<T, D>, Enclosing> =
    goes_by_cereal<std::remove_const_t<T>, Enclosing>;
template <aggregate_object T, class Enclosing>
inline constexpr bool goes_by_cereal<T, Enclosing> =
    !plain<T> &&
    goes_by_cereal<typename members_within<T, Enclosing>::type, typename members_within<T, Enclosing>::enclosing>;

template <class T>
inline constexpr bool is_shared_ptr = false;
template <class T>
inline constexpr bool is_shared_ptr<std::shared_ptr<T>> = true;
template <class T>
inline constexpr bool is_weak_ptr = false;
template <class T>
inline constexpr bool is_weak_ptr<std::weak_ptr<T>> = true;

template <class T>
inline constexpr bool is_shared_owner = is_shared_ptr<T> || is_weak_ptr<T>;

/// True if a std::unique_ptr can be serialized. The size of an array is not known. A deleter of its own would have to
/// come with the bytes. Of a polymorphic object only the static type is known, and the rest would be cut off.
template <class T>
inline constexpr bool owns_one_object = false;
template <class T>
inline constexpr bool owns_one_object<std::unique_ptr<T>> =
    !std::is_array_v<T> && (!std::is_polymorphic_v<T> || std::is_final_v<T>);

}  // namespace hfcomm::detail
