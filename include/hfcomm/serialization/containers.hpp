// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <forward_list>
#include <iterator>
#include <list>
#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <valarray>
#include <vector>

#include <hfcomm/serialization/archive.hpp>

/// Functions for containers. cereal's own are more general, so these are preferred. cereal's functions allocate as much
/// as a size demands, before it is known that there are so many elements. These functions grow containers while they
/// decode, and reserve no more than the message's size. Plain elements are copied as one block.
namespace hfcomm::serialization {

namespace detail {

template <class C>
void save_each(output_archive& archive, const C& container, std::size_t size) {
  archive.write_size(size);
  archive.declare_elements(size);
  for (const auto& element : container) {
    save_value(archive, element);
  }
}

template <class C>
void save_pairs(output_archive& archive, const C& container) {
  archive.write_size(container.size());
  archive.declare_elements(container.size());
  for (const auto& [key, value] : container) {
    save_value(archive, key);
    save_value(archive, value);
  }
}

/// For std::vector and std::basic_string.
template <class C>
void load_block(input_archive& archive, C& container) {
  using element = typename C::value_type;
  const std::size_t size = archive.read_size(sizeof(element));
  const std::byte* from = archive.take(size * sizeof(element));
  if constexpr (std::is_copy_constructible_v<element> && std::is_copy_assignable_v<element>) {
    if (reinterpret_cast<std::uintptr_t>(from) % alignof(element) == 0) {
      const auto* first = reinterpret_cast<const element*>(from);
      container.assign(first, first + size);  // one block copy: new elements are not zeroed first
      return;
    }
  }
  container.resize(size);
  if (size != 0) {
    std::memcpy(static_cast<void*>(container.data()), from, size * sizeof(element));
  }
}

template <class C>
void load_back(input_archive& archive, C& container) {
  container.clear();
  std::size_t left = archive.read_size();
  if constexpr (requires { container.reserve(left); }) {
    container.reserve(archive.to_reserve(left, sizeof(typename C::value_type)));
  }
  for (; left != 0; --left) {
    load_value(archive, container.emplace_back());
  }
}

template <class C>
void require_size(const C& container, std::size_t size) {
  if (container.size() != size) {
    input_archive::fail_for_equal_keys(size, container.size());
  }
}

template <class C>
void load_keys(input_archive& archive, C& container) {
  container.clear();
  const std::size_t size = archive.read_size();
  for (std::size_t i = 0; i < size; ++i) {
    typename C::key_type key{};
    load_value(archive, key);
    container.emplace_hint(container.end(), std::move(key));
  }
  require_size(container, size);
}

template <class C>
void load_pairs(input_archive& archive, C& container) {
  container.clear();
  const std::size_t size = archive.read_size();
  for (std::size_t i = 0; i < size; ++i) {
    typename C::key_type key{};
    typename C::mapped_type value{};
    load_value(archive, key);
    load_value(archive, value);
    container.emplace_hint(container.end(), std::move(key), std::move(value));
  }
  require_size(container, size);
}

}  // namespace detail

// std::vector

template <class T, class A>
void save(output_archive& archive, const std::vector<T, A>& values) {
  if constexpr (plain<T>) {
    archive.write_size(values.size());
    archive.write(values.data(), values.size() * sizeof(T));
  } else {
    detail::save_each(archive, values, values.size());
  }
}

template <class T, class A>
void load(input_archive& archive, std::vector<T, A>& values) {
  if constexpr (plain<T>) {
    detail::load_block(archive, values);
  } else {
    detail::load_back(archive, values);
  }
}

template <class A>
void save(output_archive& archive, const std::vector<bool, A>& values) {
  archive.write_size(values.size());
  for (const bool value : values) {
    save_value(archive, value);
  }
}

template <class A>
void load(input_archive& archive, std::vector<bool, A>& values) {
  values.resize(archive.read_size(1));
  for (auto&& value : values) {
    value = archive.read_bool();
  }
}

// std::basic_string

template <class T, class Traits, class A>
void save(output_archive& archive, const std::basic_string<T, Traits, A>& text) {
  archive.write_size(text.size());
  archive.write(text.data(), text.size() * sizeof(T));
}

template <class T, class Traits, class A>
void load(input_archive& archive, std::basic_string<T, Traits, A>& text) {
  static_assert(plain<T>);
  detail::load_block(archive, text);
}

// std::array

template <class T, std::size_t n>
void save(output_archive& archive, const std::array<T, n>& values) {
  if constexpr (plain<std::array<T, n>>) {
    archive.write(&values, sizeof(values));
  } else {
    for (const T& value : values) {
      save_value(archive, value);
    }
  }
}

template <class T, std::size_t n>
void load(input_archive& archive, std::array<T, n>& values) {
  if constexpr (plain<std::array<T, n>>) {
    archive.read(static_cast<void*>(&values), sizeof(values));
  } else {
    for (T& value : values) {
      load_value(archive, value);
    }
  }
}

// std::valarray cannot grow: elements that are not plain are decoded into a deque first.

template <class T>
void save(output_archive& archive, const std::valarray<T>& values) {
  archive.write_size(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    save_value(archive, values[i]);
  }
}

template <class T>
void load(input_archive& archive, std::valarray<T>& values) {
  if constexpr (plain<T>) {
    const std::size_t size = archive.read_size(sizeof(T));
    values.resize(size);
    if (size != 0) {
      archive.read(static_cast<void*>(&values[0]), size * sizeof(T));
    }
  } else {
    std::deque<T> elements;  // not a vector, because of bool
    detail::load_back(archive, elements);
    values.resize(elements.size());
    std::move(elements.begin(), elements.end(), std::begin(values));
  }
}

// Lists

template <class T, class A>
void save(output_archive& archive, const std::deque<T, A>& values) {
  detail::save_each(archive, values, values.size());
}

template <class T, class A>
void load(input_archive& archive, std::deque<T, A>& values) {
  detail::load_back(archive, values);
}

template <class T, class A>
void save(output_archive& archive, const std::list<T, A>& values) {
  detail::save_each(archive, values, values.size());
}

template <class T, class A>
void load(input_archive& archive, std::list<T, A>& values) {
  detail::load_back(archive, values);
}

template <class T, class A>
void save(output_archive& archive, const std::forward_list<T, A>& values) {
  detail::save_each(archive, values, static_cast<std::size_t>(std::distance(values.begin(), values.end())));
}

template <class T, class A>
void load(input_archive& archive, std::forward_list<T, A>& values) {
  values.clear();
  auto last = values.before_begin();
  for (std::size_t left = archive.read_size(); left != 0; --left) {
    last = values.emplace_after(last);
    load_value(archive, *last);
  }
}

// Sets

template <class K, class C, class A>
void save(output_archive& archive, const std::set<K, C, A>& keys) {
  detail::save_each(archive, keys, keys.size());
}

template <class K, class C, class A>
void load(input_archive& archive, std::set<K, C, A>& keys) {
  detail::load_keys(archive, keys);
}

template <class K, class C, class A>
void save(output_archive& archive, const std::multiset<K, C, A>& keys) {
  detail::save_each(archive, keys, keys.size());
}

template <class K, class C, class A>
void load(input_archive& archive, std::multiset<K, C, A>& keys) {
  detail::load_keys(archive, keys);
}

template <class K, class H, class E, class A>
void save(output_archive& archive, const std::unordered_set<K, H, E, A>& keys) {
  detail::save_each(archive, keys, keys.size());
}

template <class K, class H, class E, class A>
void load(input_archive& archive, std::unordered_set<K, H, E, A>& keys) {
  detail::load_keys(archive, keys);
}

template <class K, class H, class E, class A>
void save(output_archive& archive, const std::unordered_multiset<K, H, E, A>& keys) {
  detail::save_each(archive, keys, keys.size());
}

template <class K, class H, class E, class A>
void load(input_archive& archive, std::unordered_multiset<K, H, E, A>& keys) {
  detail::load_keys(archive, keys);
}

// Maps

template <class K, class V, class C, class A>
void save(output_archive& archive, const std::map<K, V, C, A>& map) {
  detail::save_pairs(archive, map);
}

template <class K, class V, class C, class A>
void load(input_archive& archive, std::map<K, V, C, A>& map) {
  detail::load_pairs(archive, map);
}

template <class K, class V, class C, class A>
void save(output_archive& archive, const std::multimap<K, V, C, A>& map) {
  detail::save_pairs(archive, map);
}

template <class K, class V, class C, class A>
void load(input_archive& archive, std::multimap<K, V, C, A>& map) {
  detail::load_pairs(archive, map);
}

template <class K, class V, class H, class E, class A>
void save(output_archive& archive, const std::unordered_map<K, V, H, E, A>& map) {
  detail::save_pairs(archive, map);
}

template <class K, class V, class H, class E, class A>
void load(input_archive& archive, std::unordered_map<K, V, H, E, A>& map) {
  detail::load_pairs(archive, map);
}

template <class K, class V, class H, class E, class A>
void save(output_archive& archive, const std::unordered_multimap<K, V, H, E, A>& map) {
  detail::save_pairs(archive, map);
}

template <class K, class V, class H, class E, class A>
void load(input_archive& archive, std::unordered_multimap<K, V, H, E, A>& map) {
  detail::load_pairs(archive, map);
}

}  // namespace hfcomm::serialization
