// SPDX-License-Identifier: MIT
#pragma once

/// Aggregates as objects, without a function of theirs. An aggregate here is a class without constructors, private
/// members and virtual functions, such as `struct sample { int id; std::string text; };`. Its members are of
/// serializable types, aggregates and C arrays of these among them, and at most 24. It may contain itself, as in
/// `struct node { std::vector<node> children; };`.
///
/// An aggregate is `plain` where its bytes are nothing but its members', so that there is no padding, and these are
/// plain: integers but bool, float, double, enumerations. It is then sent as raw bytes and is an element of buffers.
///
/// Refused, with the reason and the remedy in the compiler's message, are base classes, bit-fields, unions, references,
/// constants and pointers. A class with serialization functions, members or not, keeps these. So does one that
/// `enable_raw_bytes` names.
///
/// Include it before the first call or concept that concerns the aggregate, best in the header that defines it. Whether
/// that is before or after <hfcomm/comm.hpp> makes no difference. An answer that a compiler has given once stays: it
/// may go on to refuse a type that it met before this header, or complain about the specialization.

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include <hfcomm/core/plain.hpp>
#include <hfcomm/serialization/archive.hpp>
#include <hfcomm/serialization/detail/aggregate_members.hpp>
#include <hfcomm/serialization/encoder.hpp>
#include <hfcomm/serialization/not_serializable.hpp>
#include <hfcomm/serialization/serializable.hpp>
#include <hfcomm/serialization/std_parts.hpp>

namespace hfcomm::detail {

/// An aggregate that is neither a standard type, nor an empty class, nor one that says itself how it is sent.
template <class T>
concept aggregate_without_functions =
    std::is_class_v<T> && std::same_as<T, std::remove_cv_t<T>> && std::is_aggregate_v<T> && !std::is_empty_v<T> &&
    !standard_type<T> && !enable_raw_bytes<T> && element_type_of<T> == element_type::none && has_no_functions<T>;

template <class M>
void save_member(serialization::encoder& archive, const M& member) {
  if constexpr (!std::is_array_v<M>) {
    serialization::save_value(archive, member);
  } else if constexpr (plain<std::remove_all_extents_t<M>>) {
    archive.write(member, sizeof(member));
  } else {
    for (const auto& element : member) {
      save_member(archive, element);
    }
  }
}

template <class M>
void load_member(serialization::decoder& archive, M& member) {
  if constexpr (!std::is_array_v<M>) {
    serialization::load_value(archive, member);
  } else if constexpr (plain<std::remove_all_extents_t<M>>) {
    archive.read(member, sizeof(member));
  } else {
    for (auto& element : member) {
      load_member(archive, element);
    }
  }
}

/// An aggregate T with members of these types.
template <class T, class... Members>
struct known_aggregate {
  using members = parts<std::remove_all_extents_t<Members>...>;
  static constexpr bool has_constant = (std::is_const_v<std::remove_all_extents_t<Members>> || ...);

  // Members do not overlap, because no plain one is empty or ends in padding. So the rest of T would be padding.
  static constexpr bool is_plain = std::is_trivially_copyable_v<T> &&
                                   (plain<std::remove_all_extents_t<Members>> && ...) &&
                                   (sizeof(Members) + ... + 0) == sizeof(T);

  static void save(serialization::encoder& archive, const T& value) {
    visit_members<sizeof...(Members)>(value, [&](const Members&... member) { (save_member(archive, member), ...); });
  }
  static void load(serialization::decoder& archive, T& value) {
    visit_members<sizeof...(Members)>(value, [&](Members&... member) { (load_member(archive, member), ...); });
  }
};

template <class Why>
struct refused_aggregate {
  static constexpr bool is_plain = false;
  using why = Why;
};

template <class T>
consteval auto describe_aggregate() {
  using refused = reason::not_serializable<T>;
  using no_value_member =
      typename refused::a_member_is_constant_or_a_reference_or_has_no_default_constructor_so_use_an_ordinary_value;
  if constexpr (!std::default_initializable<T>) {
    return refused_aggregate<no_value_member>{};
  } else if constexpr (has_base<T>) {
    return refused_aggregate<
        typename refused::it_has_a_base_class_so_make_that_a_member_or_give_it_a_serialize_member>{};
  } else if constexpr (constexpr std::size_t count = count_members<T>(); count > max_members) {
    return refused_aggregate<
        typename refused::it_has_more_than_24_members_so_group_them_or_give_it_a_serialize_member>{};
  } else if constexpr (has_more_members<T, count>) {
    return refused_aggregate<no_value_member>{};
  } else if constexpr (has_union<T, count>) {
    return refused_aggregate<
        typename refused::
            a_union_does_not_say_which_member_it_holds_so_use_a_std_variant_or_give_its_class_a_serialize_member>{};
  } else {
    constexpr auto know = []<class... Members>(Members&...) { return known_aggregate<T, Members...>{}; };
    using known = decltype(visit_members<count>(std::declval<T&>(), know));
    if constexpr (std::is_void_v<known>) {
      return refused_aggregate<typename refused::it_has_a_bit_field_so_use_an_integer_or_give_it_a_serialize_member>{};
    } else if constexpr (known::has_constant) {
      return refused_aggregate<no_value_member>{};
    } else {
      return known{};
    }
  }
}

template <aggregate_without_functions T>
struct aggregate_traits<T> : decltype(describe_aggregate<T>()) {};

}  // namespace hfcomm::detail
