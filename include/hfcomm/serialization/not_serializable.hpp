// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <span>
#include <type_traits>

#include <hfcomm/serialization/serializable.hpp>
#include <hfcomm/serialization/type_name.hpp>

/// Types whose names say why a call is refused and what to do. They are template arguments of deleted functions, so
/// that a compiler's message about the call shows them. They have no definitions.
namespace hfcomm::reason {

/// No reason: the call is valid, and the deleted overload takes no part.
struct none;

/// T is no object that can be sent. T is the object's type, or the first type within it that is refused.
template <class T>
struct not_serializable {
  struct give_it_a_serialize_member_or_save_and_load_or_enable_raw_bytes;
  struct give_it_a_serialize_member_or_save_and_load_or_enable_raw_bytes_or_include_hfcomm_aggregates_hpp;
  struct its_serialize_is_private_or_takes_no_archive_so_make_cereal_access_a_friend_or_make_it_a_template;
  struct it_has_a_base_class_so_make_that_a_member_or_give_it_a_serialize_member;
  struct it_has_a_bit_field_so_use_an_integer_or_give_it_a_serialize_member;
  struct it_has_more_than_24_members_so_group_them_or_give_it_a_serialize_member;
  struct a_member_is_constant_or_a_reference_or_has_no_default_constructor_so_use_an_ordinary_value;
  struct a_union_does_not_say_which_member_it_holds_so_use_a_std_variant_or_give_its_class_a_serialize_member;
  struct shared_ownership_could_alias_objects_of_other_types_so_use_the_value_or_a_unique_ptr;
  struct a_raw_pointer_means_nothing_elsewhere_so_use_the_value_a_unique_ptr_or_a_span;
  struct behind_a_polymorphic_pointer_derived_parts_would_be_lost_so_use_a_final_class_or_a_variant;
  struct a_unique_ptr_needs_the_default_deleter_and_one_object_so_use_a_vector_for_an_array;
  struct a_decoded_view_would_have_nothing_to_view_so_use_a_container;
  struct an_array_is_no_object_so_use_a_std_array_or_a_std_string_or_a_std_span;
  struct a_container_s_own_functions_and_its_base_s_are_ambiguous_so_make_the_base_a_member;
  struct its_comparator_or_hash_would_be_null_after_decoding_so_use_a_class_with_an_operator;
  struct it_needs_a_default_constructor_and_a_move_constructor;
  struct it_means_nothing_in_another_process_so_send_a_value_that_it_stands_for;
};

}  // namespace hfcomm::reason

namespace hfcomm::detail {

template <class T>
inline constexpr bool is_unique_ptr = false;
template <class T, class D>
inline constexpr bool is_unique_ptr<std::unique_ptr<T, D>> = true;

template <class T>
inline constexpr bool is_polymorphic_owner = false;
template <class T>
inline constexpr bool is_polymorphic_owner<std::unique_ptr<T>> = std::is_polymorphic_v<T>;

struct any_serialize {
  void serialize();
};
template <class T>
struct serialize_of : T, any_serialize {};

/// True if T has a member of that name, which may be private: it hides the other one.
template <class T>
concept has_member_named_serialize =
    std::is_class_v<T> && !std::is_final_v<T> && !requires { &serialize_of<T>::serialize; };

/// True for classes of the standard library and of hfcomm, to which a user cannot add functions: std::function,
/// std::mutex, work, process_group.
template <class T>
concept library_class = std::is_class_v<T> && (type_name_of_compiler<T>().starts_with("std::") ||
                                               type_name_of_compiler<T>().starts_with("hfcomm::"));

/// The result of functions that find a reason.
template <class Why>
using because = std::type_identity<Why>;

/// Returns the reason for a type that is refused itself, not for a type within it.
template <class T>
consteval auto reason_against() {
  using refused = reason::not_serializable<T>;
  if constexpr (is_shared_owner<T>) {
    return because<
        typename refused::shared_ownership_could_alias_objects_of_other_types_so_use_the_value_or_a_unique_ptr>{};
  } else if constexpr (std::is_pointer_v<T> || std::is_member_pointer_v<T>) {
    return because<typename refused::a_raw_pointer_means_nothing_elsewhere_so_use_the_value_a_unique_ptr_or_a_span>{};
  } else if constexpr (requires { typename aggregate_traits<T>::why; }) {
    return because<typename aggregate_traits<T>::why>{};
  } else if constexpr (std::is_union_v<T>) {
    return because<
        typename refused::
            a_union_does_not_say_which_member_it_holds_so_use_a_std_variant_or_give_its_class_a_serialize_member>{};
  } else if constexpr (is_polymorphic_owner<T>) {
    return because<
        typename refused::behind_a_polymorphic_pointer_derived_parts_would_be_lost_so_use_a_final_class_or_a_variant>{};
  } else if constexpr (is_unique_ptr<T>) {
    return because<
        typename refused::a_unique_ptr_needs_the_default_deleter_and_one_object_so_use_a_vector_for_an_array>{};
  } else if constexpr (std::ranges::view<T>) {
    return because<typename refused::a_decoded_view_would_have_nothing_to_view_so_use_a_container>{};
  } else if constexpr (std::is_array_v<T>) {
    return because<typename refused::an_array_is_no_object_so_use_a_std_array_or_a_std_string_or_a_std_span>{};
  } else if constexpr (has_null_functions<T>) {
    return because<
        typename refused::its_comparator_or_hash_would_be_null_after_decoding_so_use_a_class_with_an_operator>{};
  } else if constexpr (std::is_class_v<T> && (standard_type<T> || aggregate_object<T> || has_functions<T>())) {
    return because<typename refused::it_needs_a_default_constructor_and_a_move_constructor>{};
  } else if constexpr (std::ranges::range<T>) {
    return because<
        typename refused::a_container_s_own_functions_and_its_base_s_are_ambiguous_so_make_the_base_a_member>{};
  } else if constexpr (library_class<T> || std::is_null_pointer_v<T>) {
    return because<typename refused::it_means_nothing_in_another_process_so_send_a_value_that_it_stands_for>{};
  } else if constexpr (has_member_named_serialize<T>) {
    return because<
        typename refused::
            its_serialize_is_private_or_takes_no_archive_so_make_cereal_access_a_friend_or_make_it_a_template>{};
  } else if constexpr (std::is_class_v<T> && std::is_aggregate_v<T> && has_no_functions<T>) {
    return because<
        typename refused::
            give_it_a_serialize_member_or_save_and_load_or_enable_raw_bytes_or_include_hfcomm_aggregates_hpp>{};
  } else {
    return because<typename refused::give_it_a_serialize_member_or_save_and_load_or_enable_raw_bytes>{};
  }
}

/// Returns the reason for an object's type, and `reason::none` for a serializable one.
template <class T>
consteval auto find_reason_against_object() {
  if constexpr (serializable<T>) {
    return because<reason::none>{};
  } else if constexpr (std::is_same_v<first_unserializable_t<T>, everything_is_serializable>) {
    return reason_against<T>();
  } else {
    return reason_against<first_unserializable_t<T>>();
  }
}

template <class T>
using why_no_object = typename decltype(find_reason_against_object<std::remove_cvref_t<T>>())::type;

/// True for a reason. No concept, whose definition compilers would explain at each deleted function that takes no part.
template <class Why>
inline constexpr bool refused = !std::is_same_v<Why, reason::none>;

}  // namespace hfcomm::detail
