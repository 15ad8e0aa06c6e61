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
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <valarray>
#include <variant>
#include <vector>

/// Which standard types the archives know, and what their values consist of.
namespace hfcomm::detail {

template <class... Ts>
struct parts {};

template <class T>
struct std_parts {};

template <class T, class A>
struct std_parts<std::vector<T, A>> {
  using type = parts<T>;
};
template <class T, class Traits, class A>
struct std_parts<std::basic_string<T, Traits, A>> {
  using type = parts<T>;
};
template <class T, class A>
struct std_parts<std::deque<T, A>> {
  using type = parts<T>;
};
template <class T, class A>
struct std_parts<std::list<T, A>> {
  using type = parts<T>;
};
template <class T, class A>
struct std_parts<std::forward_list<T, A>> {
  using type = parts<T>;
};
template <class T, std::size_t n>
struct std_parts<std::array<T, n>> {
  using type = parts<T>;
};
template <class T>
struct std_parts<std::valarray<T>> {
  using type = parts<T>;
};
template <class K, class C, class A>
struct std_parts<std::set<K, C, A>> {
  using type = parts<K>;
};
template <class K, class C, class A>
struct std_parts<std::multiset<K, C, A>> {
  using type = parts<K>;
};
template <class K, class H, class E, class A>
struct std_parts<std::unordered_set<K, H, E, A>> {
  using type = parts<K>;
};
template <class K, class H, class E, class A>
struct std_parts<std::unordered_multiset<K, H, E, A>> {
  using type = parts<K>;
};
template <class K, class V, class C, class A>
struct std_parts<std::map<K, V, C, A>> {
  using type = parts<K, V>;
};
template <class K, class V, class C, class A>
struct std_parts<std::multimap<K, V, C, A>> {
  using type = parts<K, V>;
};
template <class K, class V, class H, class E, class A>
struct std_parts<std::unordered_map<K, V, H, E, A>> {
  using type = parts<K, V>;
};
template <class K, class V, class H, class E, class A>
struct std_parts<std::unordered_multimap<K, V, H, E, A>> {
  using type = parts<K, V>;
};
template <class T, class C>
struct std_parts<std::queue<T, C>> {
  using type = parts<C>;
};
template <class T, class C>
struct std_parts<std::stack<T, C>> {
  using type = parts<C>;
};
template <class T, class C, class Compare>
struct std_parts<std::priority_queue<T, C, Compare>> {
  using type = parts<Compare, C>;
};
template <class T, class U>
struct std_parts<std::pair<T, U>> {
  using type = parts<T, U>;
};
template <class... Ts>
struct std_parts<std::tuple<Ts...>> {
  using type = parts<Ts...>;
};
template <class... Ts>
struct std_parts<std::variant<Ts...>> {
  using type = parts<Ts...>;
};
template <>
struct std_parts<std::monostate> {
  using type = parts<>;
};
template <class T>
struct std_parts<std::optional<T>> {
  using type = parts<T>;
};
template <class T>
struct std_parts<std::complex<T>> {
  using type = parts<T>;
};
template <std::size_t n>
struct std_parts<std::bitset<n>> {
  using type = parts<>;
};
template <class Count, class Period>
struct std_parts<std::chrono::duration<Count, Period>> {
  using type = parts<Count>;
};
template <class Clock, class Duration>
struct std_parts<std::chrono::time_point<Clock, Duration>> {
  using type = parts<Duration>;
};
// What it points to is no part: it may be const, and need not be movable.
template <class T, class D>
struct std_parts<std::unique_ptr<T, D>> {
  using type = parts<>;
};

template <class T>
concept standard_type = requires { typename std_parts<T>::type; };

/// Why a std::unique_ptr cannot be serialized, if so: an array's size is not known; a deleter of its own would have to
/// come with the bytes; of a polymorphic object only the static type is known, and the rest would be cut off.
template <class T>
inline constexpr bool owns_one_object = false;
template <class T>
inline constexpr bool owns_one_object<std::unique_ptr<T>> =
    !std::is_array_v<T> && (!std::is_polymorphic_v<T> || std::is_final_v<T>);

}  // namespace hfcomm::detail
