// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <hfcomm/core/element_type.hpp>
#include <hfcomm/core/reduce_op.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/core/std_template.hpp>
#include <hfcomm/core/weighted_mean.hpp>
#include <hfcomm/serialization/serializable.hpp>

namespace hfcomm {

namespace detail {

template <class T>
inline constexpr bool is_single_leaf = reducible_element<T> || std::same_as<T, weighted_mean>;

/// A value of a dictionary: a number, a weighted mean, or a variant of such types.
template <class T>
inline constexpr bool is_leaf = is_single_leaf<T>;
template <template <class...> class C, class... Ts>
  requires(std_template_name<C> == "variant")
inline constexpr bool is_leaf<C<Ts...>> = (is_single_leaf<Ts> && ...);

template <class M>
concept map_of_sortable_keys = requires(const M& map, const typename M::key_type& key) {
  typename M::mapped_type;
  { map.size() } -> std::convertible_to<std::size_t>;
  map.at(key);  // a multimap has no `at`; its values of equal keys could not be distinguished
} && serializable<typename M::key_type> && std::totally_ordered<typename M::key_type>;

template <class M>
consteval bool is_dictionary() {
  if constexpr (!map_of_sortable_keys<M>) {
    return false;
  } else {
    return is_leaf<typename M::mapped_type> || is_dictionary<typename M::mapped_type>();
  }
}

}  // namespace detail

/// A map from sortable, serializable, unique keys to values that can be reduced:
/// - numbers: std::map<std::string, float>, std::unordered_map<int, double>, ...
/// - `weighted_mean`;
/// - a std::variant of those, so that one dictionary has values of several types;
/// - dictionaries, to any depth: std::map<std::string, std::map<std::string, double>>.
template <class M>
concept dictionary = detail::is_dictionary<M>();

namespace detail {

template <class T>
struct leaf_of : std::type_identity<T> {};
template <dictionary M>
struct leaf_of<M> : leaf_of<typename M::mapped_type> {};

/// The type of the values at the end of all paths through a dictionary.
template <dictionary M>
using dictionary_leaf = typename leaf_of<M>::type;

template <dictionary M>
using dictionary_reduction =
    std::conditional_t<reducible_element<dictionary_leaf<M>>, reduction<dictionary_leaf<M>>, any_reduction>;

/// The parameter types of a reduction of it: checked while compiling where all values are of one element type.
template <dictionary M>
using dictionary_op = average_or<dictionary_reduction<M>>;
template <dictionary M>
using dictionary_op_or_root = average_or<dictionary_reduction<M>, true>;

/// The type of a value in a message: an element_type, or one of the values after those.
enum class leaf_kind : std::uint8_t { weighted_mean = static_cast<std::uint8_t>(last_element_type) + 1 };

inline constexpr std::size_t leaf_kinds = static_cast<std::size_t>(leaf_kind::weighted_mean) + 1;

/// Returns the element type in which values are reduced; each value is `elements_in` elements.
[[nodiscard]] constexpr element_type element_of(leaf_kind kind) noexcept {
  return kind == leaf_kind::weighted_mean ? element_type::float64 : static_cast<element_type>(kind);
}
[[nodiscard]] constexpr std::size_t elements_in(leaf_kind kind) noexcept {
  return kind == leaf_kind::weighted_mean ? 2 : 1;
}
[[nodiscard]] constexpr std::size_t size_of(leaf_kind kind) noexcept {
  return elements_in(kind) * hfcomm::size_of(element_of(kind));
}
/// Returns the reduction of the elements: the sums and counts of weighted means are always added.
[[nodiscard]] constexpr reduce_kind operation_for(leaf_kind kind, reduce_kind op) noexcept {
  return kind == leaf_kind::weighted_mean ? reduce_kind::sum : op;
}
[[nodiscard]] constexpr bool valid(reduce_kind op, leaf_kind kind) noexcept {
  return kind == leaf_kind::weighted_mean ? op == reduce_kind::sum || op == reduce_kind::average
                                          : valid(op, static_cast<element_type>(kind));
}
[[nodiscard]] constexpr std::string_view to_string(leaf_kind kind) noexcept {
  return kind == leaf_kind::weighted_mean ? "weighted_mean" : hfcomm::to_string(static_cast<element_type>(kind));
}

template <class T>
inline constexpr leaf_kind leaf_kind_of = static_cast<leaf_kind>(element_type_of<T>);
template <>
inline constexpr leaf_kind leaf_kind_of<weighted_mean> = leaf_kind::weighted_mean;

/// Returns pointers to a map's entries, in the order of their keys.
template <class Map>
auto in_order_of_keys(Map& map) {
  std::vector<decltype(&*map.begin())> entries;
  entries.reserve(map.size());
  for (auto& entry : map) {
    entries.push_back(&entry);
  }
  std::sort(entries.begin(), entries.end(),
            [](const auto* left, const auto* right) { return left->first < right->first; });
  return entries;
}

/// Calls `use` with the number or mean that the leaf holds. Throws std::bad_variant_access for a variant that is
/// valueless by exception.
template <class Leaf, class Use>
void visit_leaf(Leaf& leaf, Use&& use) {
  if constexpr (is_single_leaf<std::remove_const_t<Leaf>>) {
    std::forward<Use>(use)(leaf);
  } else {
    visit(std::forward<Use>(use), leaf);  // std::visit
  }
}

}  // namespace detail

}  // namespace hfcomm
