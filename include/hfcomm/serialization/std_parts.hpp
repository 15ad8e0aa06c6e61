// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <bitset>
#include <chrono>
#include <complex>
#include <cstddef>
#include <deque>
#include <forward_list>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <stack>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <valarray>
#include <variant>
#include <vector>

/// The standard types that the archives know, and the types that their values consist of.
namespace hfcomm::detail {

template <class... Ts>
struct parts {};

/// A type that hfcomm has its own save and load for.
template <class... Ts>
struct own_parts {
  using type = parts<Ts...>;
  static constexpr bool has_own_functions = true;
};

/// A type that cereal has the functions for.
template <class... Ts>
struct cereal_parts {
  using type = parts<Ts...>;
  static constexpr bool has_own_functions = false;
};

template <class T>
struct std_parts {};

template <class T, class A>
struct std_parts<std::vector<T, A>> : own_parts<T> {};
template <class T, class Traits, class A>
struct std_parts<std::basic_string<T, Traits, A>> : own_parts<T> {};
template <class T, class A>
struct std_parts<std::deque<T, A>> : own_parts<T> {};
template <class T, class A>
struct std_parts<std::list<T, A>> : own_parts<T> {};
template <class T, class A>
struct std_parts<std::forward_list<T, A>> : own_parts<T> {};
template <class T, std::size_t n>
struct std_parts<std::array<T, n>> : own_parts<T> {};
template <class T>
struct std_parts<std::valarray<T>> : own_parts<T> {};
template <class K, class C, class A>
struct std_parts<std::set<K, C, A>> : own_parts<K> {};
template <class K, class C, class A>
struct std_parts<std::multiset<K, C, A>> : own_parts<K> {};
template <class K, class H, class E, class A>
struct std_parts<std::unordered_set<K, H, E, A>> : own_parts<K> {};
template <class K, class H, class E, class A>
struct std_parts<std::unordered_multiset<K, H, E, A>> : own_parts<K> {};
template <class K, class V, class C, class A>
struct std_parts<std::map<K, V, C, A>> : own_parts<K, V> {};
template <class K, class V, class C, class A>
struct std_parts<std::multimap<K, V, C, A>> : own_parts<K, V> {};
template <class K, class V, class H, class E, class A>
struct std_parts<std::unordered_map<K, V, H, E, A>> : own_parts<K, V> {};
template <class K, class V, class H, class E, class A>
struct std_parts<std::unordered_multimap<K, V, H, E, A>> : own_parts<K, V> {};
template <class T, class C>
struct std_parts<std::queue<T, C>> : cereal_parts<C> {};
template <class T, class C>
struct std_parts<std::stack<T, C>> : cereal_parts<C> {};
template <class T, class C, class Compare>
struct std_parts<std::priority_queue<T, C, Compare>> : cereal_parts<Compare, C> {};
template <class T, class U>
struct std_parts<std::pair<T, U>> : cereal_parts<T, U> {};
template <class... Ts>
struct std_parts<std::tuple<Ts...>> : cereal_parts<Ts...> {};
template <class... Ts>
struct std_parts<std::variant<Ts...>> : cereal_parts<Ts...> {};
template <>
struct std_parts<std::monostate> : cereal_parts<> {};
template <class T>
struct std_parts<std::optional<T>> : cereal_parts<T> {};
template <class T>
struct std_parts<std::complex<T>> : cereal_parts<T> {};
template <std::size_t n>
struct std_parts<std::bitset<n>> : cereal_parts<> {};
template <class Count, class Period>
struct std_parts<std::chrono::duration<Count, Period>> : cereal_parts<Count> {};
template <class Clock, class Duration>
struct std_parts<std::chrono::time_point<Clock, Duration>> : cereal_parts<Duration> {};
// The object that a unique_ptr points to is not checked as a part: it may be const and need not be movable.
template <class T, class D>
struct std_parts<std::unique_ptr<T, D>> : own_parts<> {};

template <class T>
concept standard_type = requires { typename std_parts<T>::type; };

/// A standard type whose save and load are called without cereal's search for functions, which costs compile time.
template <class T>
concept own_standard_type = standard_type<T> && std_parts<T>::has_own_functions;

/// True if a std::unique_ptr can be serialized. The size of an array is not known. A deleter of its own would have to
/// come with the bytes. Of a polymorphic object only the static type is known, and the rest would be cut off.
template <class T>
inline constexpr bool owns_one_object = false;
template <class T>
inline constexpr bool owns_one_object<std::unique_ptr<T>> =
    !std::is_array_v<T> && (!std::is_polymorphic_v<T> || std::is_final_v<T>);

}  // namespace hfcomm::detail
