// SPDX-License-Identifier: MIT
#pragma once

/// Reasons why no overload takes a call, besides those of not_serializable.hpp: see refused_calls.hpp.
namespace hfcomm::reason {

/// Elements of type T have no reductions.
template <class T>
struct not_reducible {
  struct pass_a_callable_that_combines_two_or_enable_element_type;
};

/// The call cannot write to constant elements of type T.
template <class T>
struct constant_elements {
  struct pass_another_buffer_for_the_result;
  struct they_are_replaced_so_pass_memory_that_is_not_constant;
};

/// The call cannot write to an object of type T.
template <class T>
struct constant_object {
  struct it_is_replaced_so_pass_a_variable_that_is_not_constant;
};
template <class T>
struct temporary_object {
  struct what_it_gets_would_be_lost_so_pass_a_variable;
};

/// R is no memory of elements.
template <class R>
struct no_buffer {
  struct a_pointer_has_no_length_so_pass_std_span_of_the_pointer_and_the_length;
  struct use_contiguous_memory_of_plain_elements_such_as_a_std_vector_of_numbers;
  struct this_operation_is_there_for_host_memory_so_copy_the_elements_to_the_host;
  struct a_byte_from_elsewhere_may_be_no_bool_so_use_elements_of_unsigned_char;
  struct its_elements_are_not_trivially_copyable_so_use_numbers_or_a_std_array_or_a_struct_of_them;
  struct its_elements_may_have_padding_or_pointers_so_enable_raw_bytes_or_include_hfcomm_aggregates_hpp;
};

/// The elements of In cannot become elements of Out.
template <class In, class Out>
struct different_memory {
  struct input_and_output_need_elements_of_the_same_type;
  struct input_and_output_are_both_in_host_memory_or_both_on_a_device;
};

/// T is no list of objects.
template <class T>
struct no_list_of_objects {
  struct pass_a_std_vector_that_is_not_constant_or_std_tie_of_the_objects;
};

/// R is no memory of which a receive knows the length.
template <class R>
struct no_memory_to_receive {
  struct wrap_it_in_std_span_or_receive_an_object_by_recv_of_its_type_as_in_recv_T_of_source;
};

/// R owns its elements, so that it would be an object.
template <class R>
struct owned_memory {
  struct wrap_both_in_std_span;
};

/// M is no dictionary.
template <class M>
struct no_dictionary {
  struct use_a_map_with_unique_sortable_keys;
  struct its_values_need_to_be_numbers_weighted_means_variants_of_these_or_dictionaries;
};

/// The callable may be meant for T's elements as well as for two T.
template <class T, class Op>
struct elements_or_whole {
  struct wrap_it_in_std_span_for_element_by_element_or_spell_out_the_types_of_the_callable_s_parameters;
};

/// The callable cannot combine two T into one.
template <class T, class Op>
struct not_combined {
  struct the_callable_takes_two_of_them_and_returns_one;
};

/// R is a temporary that owns its elements.
template <class R>
struct temporary_buffer {
  struct it_would_be_gone_when_the_operation_runs_so_keep_it_until_the_work_is_done;
};

}  // namespace hfcomm::reason
