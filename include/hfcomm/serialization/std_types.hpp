// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <hfcomm/core/plain.hpp>
#include <hfcomm/serialization/archive.hpp>
#include <hfcomm/serialization/std_parts.hpp>

/// Functions for standard types. cereal's functions for containers allocate as much as a size demands, before it is
/// known that there are so many elements. These functions grow containers while they decode, and reserve no more than
/// the message's size. Plain elements are copied as one block.
namespace hfcomm::serialization {

namespace detail {

using hfcomm::detail::std_kind;

template <class C>
void save_elements(encoder& archive, const C& container, std::size_t size) {
  archive.write_size(size);
  archive.declare_elements(size);
  for (const auto& element : container) {
    if constexpr (hfcomm::detail::std_kind_of<C> == std_kind::map) {
      save_value(archive, element.first);
      save_value(archive, element.second);
    } else {
      save_value(archive, element);
    }
  }
}

template <class C>
void load_elements(decoder& archive, C& container) {
  container.clear();
  std::size_t left = archive.read_size();
  if constexpr (requires { container.reserve(left); }) {
    container.reserve(archive.to_reserve(left, sizeof(typename C::value_type)));
  }
  for (; left != 0; --left) {
    load_value(archive, container.emplace_back());
  }
}

// std::vector and std::basic_string

template <class C>
void save_block(encoder& archive, const C& container) {
  using element = typename C::value_type;
  if constexpr (std::is_same_v<element, bool>) {
    archive.write_size(container.size());
    for (const bool value : container) {
      save_value(archive, value);
    }
  } else if constexpr (plain<element>) {
    archive.write_size(container.size());
    archive.write(container.data(), container.size() * sizeof(element));
  } else {
    save_elements(archive, container, container.size());
  }
}

template <class C>
void load_plain_block(decoder& archive, C& container) {
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
void load_block(decoder& archive, C& container) {
  using element = typename C::value_type;
  if constexpr (std::is_same_v<element, bool>) {
    container.resize(archive.read_size(1));
    for (auto&& value : container) {
      value = archive.read_bool();
    }
  } else if constexpr (plain<element>) {
    load_plain_block(archive, container);
  } else {
    load_elements(archive, container);
  }
}

// std::forward_list

template <class C>
void save_forward_list(encoder& archive, const C& list) {
  std::size_t size = 0;
  for (auto at = list.begin(); at != list.end(); ++at) {
    ++size;
  }
  save_elements(archive, list, size);
}

template <class C>
void load_forward_list(decoder& archive, C& list) {
  list.clear();
  auto last = list.before_begin();
  for (std::size_t left = archive.read_size(); left != 0; --left) {
    last = list.emplace_after(last);
    load_value(archive, *last);
  }
}

// std::valarray cannot grow: elements that are not plain are decoded into a vector first.

template <class C>
void save_valarray(encoder& archive, const C& values) {
  archive.write_size(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    save_value(archive, values[i]);
  }
}

template <class C>
void load_valarray(decoder& archive, C& values) {
  using element = typename C::value_type;
  if constexpr (plain<element>) {
    const std::size_t size = archive.read_size(sizeof(element));
    values.resize(size);
    if (size != 0) {
      archive.read(static_cast<void*>(&values[0]), size * sizeof(element));
    }
  } else {
    struct holder {  // a vector of bool has no elements
      element value{};
    };
    std::vector<holder> decoded;
    for (std::size_t left = archive.read_size(); left != 0; --left) {
      load_value(archive, decoded.emplace_back().value);
    }
    values.resize(decoded.size());
    for (std::size_t i = 0; i < decoded.size(); ++i) {
      values[i] = std::move(decoded[i].value);
    }
  }
}

// Sets and maps

template <class C>
void load_keys(decoder& archive, C& container) {
  container.clear();
  const std::size_t size = archive.read_size();
  for (std::size_t i = 0; i < size; ++i) {
    typename C::key_type key{};
    if constexpr (hfcomm::detail::std_kind_of<C> == std_kind::map) {
      typename C::mapped_type value{};
      load_value(archive, key);
      load_value(archive, value);
      container.emplace_hint(container.end(), std::move(key), std::move(value));
    } else {
      load_value(archive, key);
      container.emplace_hint(container.end(), std::move(key));
    }
  }
  if (container.size() != size) {
    decoder::fail_for_equal_keys(size, container.size());
  }
}

// std::queue, std::stack and std::priority_queue

/// Reaches the protected members of an adaptor.
template <class A>
struct adaptor_members : A {
  static auto& container_of(A& adaptor) { return adaptor.*(&adaptor_members::c); }
  static const auto& container_of(const A& adaptor) { return adaptor.*(&adaptor_members::c); }
  static auto& compare_of(A& adaptor) { return adaptor.*(&adaptor_members::comp); }
  static const auto& compare_of(const A& adaptor) { return adaptor.*(&adaptor_members::comp); }
};

// std::variant

template <class T>
inline constexpr std::size_t alternatives_of = 0;
template <template <class...> class C, class... Ts>
inline constexpr std::size_t alternatives_of<C<Ts...>> = sizeof...(Ts);

template <class V, std::size_t... index>
void save_variant(encoder& archive, const V& value, std::index_sequence<index...> /*indices*/) {
  if (value.valueless_by_exception()) {
    static_cast<void>(get<0>(value));  // throws std::bad_variant_access
  }
  save_value(archive, static_cast<std::int32_t>(value.index()));
  static_cast<void>(((value.index() == index && (save_value(archive, get<index>(value)), true)) || ...));
}

template <class V, std::size_t... index>
void load_variant(decoder& archive, V& value, std::index_sequence<index...> /*indices*/) {
  std::int32_t wanted = 0;
  load_value(archive, wanted);
  const bool is_known =
      ((wanted == static_cast<std::int32_t>(index) && (load_value(archive, value.template emplace<index>()), true)) ||
       ...);
  if (!is_known) {
    decoder::fail_for_alternative(wanted, sizeof...(index));
  }
}

// std::optional

template <class O>
void load_optional(decoder& archive, O& optional) {
  if (!archive.read_bool()) {
    optional.reset();
  } else if (optional.has_value()) {
    load_value(archive, *optional);
  } else {
    typename O::value_type value{};
    load_value(archive, value);
    optional.emplace(std::move(value));
  }
}

// std::unique_ptr, the one pointer that can be serialized

template <class Pointer>
constexpr void require_one_object() {
  static_assert(hfcomm::detail::owns_one_object<Pointer>,
                "hfcomm serializes a std::unique_ptr only with the default deleter, to one object, of no polymorphic "
                "class unless it is final");
}

template <class Pointer>
void save_pointer(encoder& archive, const Pointer& pointer) {
  require_one_object<Pointer>();
  save_value(archive, pointer != nullptr);
  if (pointer != nullptr) {
    save_value(archive, *pointer);
  }
}

template <class Pointer>
void load_pointer(decoder& archive, Pointer& pointer) {
  require_one_object<Pointer>();
  if (archive.read_bool()) {
    auto object = std::make_unique<std::remove_const_t<typename Pointer::element_type>>();
    load_value(archive, *object);
    pointer = std::move(object);
  } else {
    pointer.reset();
  }
}

// std::bitset, eight bits in a byte

template <std::size_t bits>
inline constexpr std::size_t bytes_of_bits = (bits + 7) / 8;

template <template <std::size_t> class C, std::size_t n>
void save_bitset(encoder& archive, const C<n>& bits) {
  unsigned char bytes[bytes_of_bits<n> + 1] = {};
  for (std::size_t i = 0; i < n; ++i) {
    bytes[i / 8] = static_cast<unsigned char>(bytes[i / 8] | (bits[i] ? 1U << (i % 8) : 0U));
  }
  archive.write(bytes, bytes_of_bits<n>);
}

template <template <std::size_t> class C, std::size_t n>
void load_bitset(decoder& archive, C<n>& bits) {
  const std::byte* bytes = archive.take(bytes_of_bits<n>);
  for (std::size_t i = 0; i < n; ++i) {
    bits[i] = (std::to_integer<unsigned>(bytes[i / 8]) >> (i % 8) & 1U) != 0;
  }
}

}  // namespace detail

template <class T>
void save_standard(encoder& archive, const T& value) {
  using detail::std_kind;
  constexpr std_kind kind = hfcomm::detail::std_kind_of<T>;
  if constexpr (kind == std_kind::block) {
    detail::save_block(archive, value);
  } else if constexpr (kind == std_kind::list || kind == std_kind::set || kind == std_kind::map) {
    detail::save_elements(archive, value, value.size());
  } else if constexpr (kind == std_kind::array) {
    for (const auto& element : value) {
      save_value(archive, element);
    }
  } else if constexpr (kind == std_kind::product) {
    std::apply([&](const auto&... part) { (save_value(archive, part), ...); }, value);
  } else if constexpr (kind == std_kind::optional) {
    save_value(archive, value.has_value());
    if (value.has_value()) {
      save_value(archive, *value);
    }
  } else if constexpr (kind == std_kind::unique_ptr) {
    detail::save_pointer(archive, value);
  } else if constexpr (kind == std_kind::variant) {
    detail::save_variant(archive, value, std::make_index_sequence<detail::alternatives_of<T>>());
  } else if constexpr (kind == std_kind::complex) {
    save_value(archive, value.real());
    save_value(archive, value.imag());
  } else if constexpr (kind == std_kind::duration) {
    save_value(archive, value.count());
  } else if constexpr (kind == std_kind::time_point) {
    save_value(archive, value.time_since_epoch());
  } else if constexpr (kind == std_kind::path) {
    save_value(archive, value.native());
  } else if constexpr (kind == std_kind::adaptor) {
    save_value(archive, detail::adaptor_members<T>::container_of(value));
  } else if constexpr (kind == std_kind::priority_queue) {
    save_value(archive, detail::adaptor_members<T>::compare_of(value));
    save_value(archive, detail::adaptor_members<T>::container_of(value));
  } else if constexpr (kind == std_kind::forward_list) {
    detail::save_forward_list(archive, value);
  } else if constexpr (kind == std_kind::valarray) {
    detail::save_valarray(archive, value);
  } else {
    static_assert(kind == std_kind::bitset);
    detail::save_bitset(archive, value);
  }
}

template <class T>
void load_standard(decoder& archive, T& value) {
  using detail::std_kind;
  constexpr std_kind kind = hfcomm::detail::std_kind_of<T>;
  if constexpr (kind == std_kind::block) {
    detail::load_block(archive, value);
  } else if constexpr (kind == std_kind::list) {
    detail::load_elements(archive, value);
  } else if constexpr (kind == std_kind::set || kind == std_kind::map) {
    detail::load_keys(archive, value);
  } else if constexpr (kind == std_kind::array) {
    for (auto& element : value) {
      load_value(archive, element);
    }
  } else if constexpr (kind == std_kind::product) {
    std::apply([&](auto&... part) { (load_value(archive, part), ...); }, value);
  } else if constexpr (kind == std_kind::optional) {
    detail::load_optional(archive, value);
  } else if constexpr (kind == std_kind::unique_ptr) {
    detail::load_pointer(archive, value);
  } else if constexpr (kind == std_kind::variant) {
    detail::load_variant(archive, value, std::make_index_sequence<detail::alternatives_of<T>>());
  } else if constexpr (kind == std_kind::complex) {
    typename T::value_type parts[2] = {};
    load_value(archive, parts[0]);
    load_value(archive, parts[1]);
    value = T(parts[0], parts[1]);
  } else if constexpr (kind == std_kind::duration) {
    typename T::rep count{};
    load_value(archive, count);
    value = T(count);
  } else if constexpr (kind == std_kind::time_point) {
    typename T::duration since_epoch{};
    load_value(archive, since_epoch);
    value = T(since_epoch);
  } else if constexpr (kind == std_kind::path) {
    typename T::string_type name;
    load_value(archive, name);
    value = T(std::move(name));
  } else if constexpr (kind == std_kind::adaptor) {
    load_value(archive, detail::adaptor_members<T>::container_of(value));
  } else if constexpr (kind == std_kind::priority_queue) {
    load_value(archive, detail::adaptor_members<T>::compare_of(value));
    load_value(archive, detail::adaptor_members<T>::container_of(value));
  } else if constexpr (kind == std_kind::forward_list) {
    detail::load_forward_list(archive, value);
  } else if constexpr (kind == std_kind::valarray) {
    detail::load_valarray(archive, value);
  } else {
    static_assert(kind == std_kind::bitset);
    detail::load_bitset(archive, value);
  }
}

}  // namespace hfcomm::serialization
