// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <hfcomm/core/concepts.hpp>
#include <hfcomm/core/reduce_op.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/serialization/not_serializable.hpp>

/// Reasons why no overload takes a call. Most operations have a deleted overload for such calls, because a compiler's
/// list of all candidates says neither the reason nor the remedy. Its last parameter is the reason, of which there is
/// none in valid calls. A requires-expression about a refused call is false, as it is without that overload.
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

namespace hfcomm::detail {

/// What a refused call returns. It converts to anything, so that a compiler says no more about the call.
struct refused_result {
  template <class T>
  operator T() const;
};

struct no_reason {};
template <class Why>
inline constexpr because<Why> refuse_as{};

/// The first of the types; void where there are none.
template <class... Types>
struct first_type : std::type_identity<void> {};
template <class First, class... More>
struct first_type<First, More...> : std::type_identity<First> {};
template <class... Types>
using first_type_t = typename first_type<Types...>::type;

template <class R>
concept device_argument = enable_device_range<std::remove_cvref_t<R>>;

template <class R>
concept temporary_memory = buffer<R> && !lasting_buffer<R>;

/// A list of buffers, which some collectives take.
template <class L>
concept list_of_buffers = std::ranges::forward_range<L> && buffer_view<std::ranges::range_value_t<L>> &&
                          writable_buffer<std::ranges::range_reference_t<L>>;

/// The same of buffers that are only read.
template <class L>
concept list_of_views = std::ranges::forward_range<L> && buffer_view<std::ranges::range_value_t<L>>;

template <class R>
concept buffer_or_list = buffer<R> || list_of_buffers<R>;

/// An argument that is meant as memory, not as a root, an operation, a group or a stream, which is a pointer, too.
template <class R>
concept memory_argument =
    device_argument<R> || std::ranges::range<R> ||
    (std::is_pointer_v<std::decay_t<R>> && std::is_arithmetic_v<std::remove_pointer_t<std::decay_t<R>>>);

/// An argument that stands where a reduction has its operation, and that is no callable.
template <class Op>
concept no_callable = std::is_void_v<Op> || std::convertible_to<Op, reduce_op> ||
                      std::convertible_to<const Op&, const process_group&> || buffer<Op>;

struct any_call_operator {
  void operator()();
};
/// Has an ambiguous call operator where Op has one or more of its own.
template <class Op>
struct call_operators : Op, any_call_operator {};

/// A callable that may take arguments of any type: a generic lambda, std::plus<>, overloads. Whether it takes a certain
/// type cannot be asked, because the question may be an error in its body.
template <class Op>
concept generic_callable = std::is_class_v<Op> && !std::is_final_v<Op> &&
                           !requires { &call_operators<Op>::operator(); } && !requires { &Op::operator(); };

template <class T>
inline constexpr bool is_string = false;
template <class Char, class Traits, class Allocator>
inline constexpr bool is_string<std::basic_string<Char, Traits, Allocator>> = true;

/// A buffer that is an object to a callable.
template <class T>
concept owner_of_elements = buffer<T> && serializable<T> && !is_string<T>;

/// A container and a callable that may be meant for its elements.
template <class T, class Op>
concept ambiguous_reduction =
    owner_of_elements<T> && !no_callable<Op> && (generic_callable<Op> || combines<Op, std::ranges::range_value_t<T>>);

/// A callable that combines two objects into one, and that is not meant for their elements.
template <class Op, class T>
concept combines_objects = !ambiguous_reduction<T, Op> && combines<Op, T>;

/// Why an object is refused.
template <class T>
consteval auto refuse_object() {
  if constexpr (serializable<std::remove_cvref_t<T>>) {
    return no_reason();
  } else {
    return refuse_as<why_no_object<T>>;
  }
}

template <class R, class T>
concept range_of = std::ranges::range<R> && std::is_same_v<std::ranges::range_value_t<R>, T>;

/// Why R is no buffer.
template <class R, class... Rest>
consteval auto refuse_contribution() {
  using type = std::remove_cvref_t<R>;
  using refused = reason::no_buffer<type>;
  if constexpr (buffer<R>) {
    return no_reason();
  } else if constexpr (device_argument<R>) {
    return refuse_as<typename refused::this_operation_is_there_for_host_memory_so_copy_the_elements_to_the_host>;
  } else if constexpr (std::is_pointer_v<type>) {
    return refuse_as<typename refused::a_pointer_has_no_length_so_pass_std_span_of_the_pointer_and_the_length>;
  } else if constexpr (range_of<R, bool>) {
    return refuse_as<typename refused::a_byte_from_elsewhere_may_be_no_bool_so_use_elements_of_unsigned_char>;
  } else if constexpr (is_contiguous<R>) {
    if constexpr (std::is_trivially_copyable_v<std::ranges::range_value_t<R>>) {
      return refuse_as<
          typename refused::
              its_elements_may_have_padding_or_pointers_so_enable_raw_bytes_or_include_hfcomm_aggregates_hpp>;
    } else {
      return refuse_as<
          typename refused::its_elements_are_not_trivially_copyable_so_use_numbers_or_a_std_array_or_a_struct_of_them>;
    }
  } else {
    return refuse_as<typename refused::use_contiguous_memory_of_plain_elements_such_as_a_std_vector_of_numbers>;
  }
}

/// The same for operations that device memory has not; else the reason that was found.
template <class T, class Found>
consteval auto refuse_device(Found found) {
  if constexpr (device_argument<T>) {
    return refuse_contribution<T>();
  } else {
    return found;
  }
}

/// Why an asynchronous operation refuses memory; else the reason that was found. An object is copied.
template <class T, bool is_memory, class Found>
consteval auto refuse_temporary(Found found) {
  if constexpr (temporary_memory<T> && is_memory) {
    return refuse_as<typename reason::temporary_buffer<
        T>::it_would_be_gone_when_the_operation_runs_so_keep_it_until_the_work_is_done>;
  } else {
    return found;
  }
}
template <class T, class... Rest>
consteval auto refuse_contribution_later() {
  return refuse_temporary<T, true>(refuse_contribution<T, Rest...>());
}

/// Why elements of In cannot become elements of Out. No reason where other overloads take the call.
template <class In, class Out>
consteval auto refuse_output() {
  using refused = reason::different_memory<std::remove_cvref_t<In>, std::remove_cvref_t<Out>>;
  if constexpr (!memory_argument<Out> || list_of_views<In> || list_of_views<Out> ||
                (device_argument<In> && device_argument<Out>)) {  // NOLINT(*branch-clone): alike for some types
    return no_reason();
  } else if constexpr (device_argument<In> || device_argument<Out>) {
    return refuse_as<typename refused::input_and_output_are_both_in_host_memory_or_both_on_a_device>;
  } else if constexpr (!buffer<In>) {
    return refuse_contribution<In>();
  } else if constexpr (!buffer<Out>) {
    return refuse_contribution<Out>();
  } else if constexpr (!writable_buffer<Out>) {
    return refuse_as<typename reason::constant_elements<element_in<Out>>::pass_another_buffer_for_the_result>;
  } else if constexpr (!std::is_same_v<element_in<In>, element_in<Out>>) {
    return refuse_as<typename refused::input_and_output_need_elements_of_the_same_type>;
  } else {
    return no_reason();
  }
}

/// Operations on one object, or on one or more buffers.
template <class T, class... Rest>
consteval auto refuse_object_or_buffers() {
  using out = first_type_t<Rest...>;
  if constexpr (memory_argument<out>) {
    return refuse_output<T, out>();
  } else if constexpr (device_argument<T>) {
    return no_reason();
  } else {
    return refuse_object<T>();
  }
}
template <class T, class... Rest>
consteval auto refuse_object_or_buffers_later() {
  return refuse_temporary<T, (buffer_or_list<Rest> || ...)>(refuse_object_or_buffers<T, Rest...>());
}

template <class T>
inline constexpr bool is_vector = false;
template <class T, class Allocator>
inline constexpr bool is_vector<std::vector<T, Allocator>> = true;

/// Operations on a list with an object for each rank, or on buffers with parts for them.
template <class T, class... Rest>
consteval auto refuse_parts() {
  if constexpr (memory_argument<first_type_t<Rest...>>) {
    return refuse_output<T, first_type_t<Rest...>>();
  } else if constexpr (is_vector<std::remove_cvref_t<T>>) {
    return refuse_object<std::ranges::range_value_t<T>>();
  } else {
    return no_reason();
  }
}
template <class T, class... Rest>
consteval auto refuse_parts_later() {
  return refuse_temporary<T, (buffer_or_list<Rest> || ...)>(refuse_parts<T, Rest...>());
}

/// The same where counts may stand behind each buffer.
template <class T, class Second = void, class Third = void, class... Rest>
consteval auto refuse_exchange() {
  return refuse_parts<T, std::conditional_t<memory_argument<Third>, Third, Second>>();
}
template <class T, class... Rest>
consteval auto refuse_exchange_later() {
  return refuse_temporary<T, (buffer_or_list<Rest> || ...)>(refuse_exchange<T, Rest...>());
}

/// Operations on one object or one view.
template <class T, class... Rest>
consteval auto refuse_object_or_view() {
  if constexpr (device_argument<T> || buffer_view<T> || list_of_buffers<T>) {
    return no_reason();
  } else {
    return refuse_object<T>();
  }
}
template <class T, class... Rest>
consteval auto refuse_object_or_view_later() {
  return refuse_temporary<T, buffer_view<T>>(refuse_object_or_view<T, Rest...>());
}

/// Operations that write to one object, which is a variable, or to one view.
template <class T, class... Rest>
consteval auto refuse_to_write() {
  using object = std::remove_cvref_t<T>;
  if constexpr (buffer_view<T> && !writable_buffer<T>) {
    return refuse_as<
        typename reason::constant_elements<element_in<T>>::they_are_replaced_so_pass_memory_that_is_not_constant>;
  } else if constexpr (device_argument<T> || buffer_view<T> || list_of_buffers<T> || !serializable<object>) {
    return refuse_object_or_view<T>();
  } else if constexpr (std::is_const_v<std::remove_reference_t<T>>) {
    return refuse_as<typename reason::constant_object<object>::it_is_replaced_so_pass_a_variable_that_is_not_constant>;
  } else if constexpr (!std::is_lvalue_reference_v<T>) {
    return refuse_as<typename reason::temporary_object<object>::what_it_gets_would_be_lost_so_pass_a_variable>;
  } else {
    return no_reason();
  }
}
template <class T, class... Rest>
consteval auto refuse_to_write_later() {
  return refuse_temporary<T, buffer_view<T>>(refuse_to_write<T, Rest...>());
}

/// Why a reduce_op does not reduce T, or elements of T. The constants of logical reductions are callables, too, for
/// bools.
template <class T, class Op = void>
consteval auto refuse_elements() {
  using object = std::remove_cvref_t<T>;
  if constexpr (reducible_element<object> || writable_reducible_buffer<T> || combines<Op, object>) {
    return no_reason();
  } else if constexpr (reducible_buffer<T>) {
    return refuse_as<typename reason::constant_elements<element_in<T>>::pass_another_buffer_for_the_result>;
  } else if constexpr (buffer<T>) {
    return refuse_as<
        typename reason::not_reducible<element_in<T>>::pass_a_callable_that_combines_two_or_enable_element_type>;
  } else if constexpr (std::is_pointer_v<object> || std::ranges::view<object>) {
    return refuse_contribution<T>();
  } else {
    return refuse_as<typename reason::not_reducible<object>::pass_a_callable_that_combines_two_or_enable_element_type>;
  }
}

/// Reductions of one buffer into another, `Out`, by an operation or a callable, the first of `Rest`.
template <class In, class Out = void, class... Rest>
consteval auto refuse_reduced_parts() {
  constexpr auto why = refuse_output<In, Out>();
  if constexpr (!std::is_same_v<decltype(why), const no_reason> || !buffer<In> || !memory_argument<Out> ||
                reducible_buffer<In> || !no_callable<std::remove_cvref_t<first_type_t<Rest...>>>) {
    return why;
  } else {
    return refuse_elements<In>();
  }
}
template <class T, class... Rest>
consteval auto refuse_reduced_parts_later() {
  return refuse_temporary<T, (buffer_or_list<Rest> || ...)>(refuse_reduced_parts<T, Rest...>());
}

/// Reductions of one object or one buffer, by the first of `Rest`, or into the first of `Rest`.
template <class T, class... Rest>
consteval auto refuse_reduction() {
  using object = std::remove_cvref_t<T>;
  using op = std::remove_cvref_t<first_type_t<Rest...>>;
  if constexpr (memory_argument<first_type_t<Rest...>>) {
    return refuse_reduced_parts<T, Rest...>();
  } else if constexpr (device_argument<T> || list_of_buffers<T>) {  // NOLINT(*branch-clone): alike for some types
    return no_reason();
  } else if constexpr (ambiguous_reduction<object, op>) {
    return refuse_as<typename reason::elements_or_whole<
        object, op>::wrap_it_in_std_span_for_element_by_element_or_spell_out_the_types_of_the_callable_s_parameters>;
  } else if constexpr (no_callable<op>) {
    return refuse_elements<T, op>();
  } else if constexpr (std::ranges::view<object> && is_contiguous<object> && !buffer<object>) {
    return refuse_contribution<T>();
  } else if constexpr (!serializable<object>) {
    return refuse_object_or_view<T>();
  } else if constexpr (!combines<op, object>) {
    return refuse_as<typename reason::not_combined<object, op>::the_callable_takes_two_of_them_and_returns_one>;
  } else {
    return no_reason();
  }
}

/// The same for asynchronous reductions. A buffer and a callable that combines buffers are objects.
template <class T, class... Rest>
consteval auto refuse_reduction_later() {
  using op = std::remove_cvref_t<first_type_t<Rest...>>;
  return refuse_temporary < T, buffer_view<T> || no_callable < op >> (refuse_reduction<T, Rest...>());
}

/// Reductions with a root behind the memory.
template <class T, class Second = void, class Third = void, class... Rest>
consteval auto refuse_rooted_reduction() {
  if constexpr (memory_argument<Second>) {
    return refuse_reduced_parts<T, Second, Rest...>();
  } else {
    return refuse_reduction<T, Third, Rest...>();
  }
}
template <class T, class Second = void, class Third = void, class... Rest>
consteval auto refuse_rooted_reduction_later() {
  if constexpr (memory_argument<Second>) {
    return refuse_reduced_parts_later<T, Second, Rest...>();
  } else {
    return refuse_reduction_later<T, Third, Rest...>();
  }
}

/// Scans, of host memory only.
template <class T, class... Rest>
consteval auto refuse_scan() {
  return refuse_device<T>(refuse_reduction<T, Rest...>());
}
template <class T, class... Rest>
consteval auto refuse_scan_later() {
  return refuse_device<T>(refuse_reduction_later<T, Rest...>());
}

/// Scans that may begin with a value in front of a callable, or of a constant of a logical reduction.
template <class Second, class Third>
concept init_and_op = !no_callable<Third> || (!memory_argument<Second> && !no_callable<std::remove_cvref_t<Second>> &&
                                              std::convertible_to<Third, reduce_op>);
template <class T, class Second = void, class Third = void, class... Rest>
consteval auto refuse_exclusive_scan() {
  if constexpr (memory_argument<Second> && !no_callable<std::remove_cvref_t<first_type_t<Rest...>>>) {
    return refuse_device<T>(refuse_output<T, Second>());
  } else if constexpr (init_and_op<Second, std::remove_cvref_t<Third>>) {
    return refuse_scan<T, Third, Rest...>();
  } else {
    return refuse_scan<T, Second, Third, Rest...>();
  }
}
template <class T, class Second = void, class Third = void, class... Rest>
consteval auto refuse_exclusive_scan_later() {
  if constexpr (init_and_op<Second, std::remove_cvref_t<Third>>) {
    return refuse_scan_later<T, Third, Rest...>();
  } else {
    return refuse_scan_later<T, Second, Third, Rest...>();
  }
}

/// Receiving objects of type T. A view has its type as an argument of the template, too, where it is named.
template <class T, class... Rest>
consteval auto refuse_received_object() {
  if constexpr ((buffer_view<Rest> || ...)) {
    return no_reason();
  } else {
    return refuse_object<T>();
  }
}

/// Receiving into memory.
template <class R, class... Rest>
consteval auto refuse_memory_to_receive() {
  if constexpr (device_argument<R>) {
    return no_reason();
  } else if constexpr (buffer_view<R>) {
    return refuse_to_write<R>();
  } else {
    return refuse_as<typename reason::no_memory_to_receive<
        std::remove_cvref_t<R>>::wrap_it_in_std_span_or_receive_an_object_by_recv_of_its_type_as_in_recv_T_of_source>;
  }
}

/// Sending one object or elements, and receiving another or others, behind the destination.
template <class Out, class Destination = void, class In = void, class... Rest>
consteval auto refuse_send_receive() {
  if constexpr (device_argument<Out> || device_argument<In>) {
    return no_reason();
  } else if constexpr (!memory_argument<In>) {
    return refuse_object<Out>();
  } else if constexpr (!buffer<Out>) {
    return refuse_contribution<Out>();
  } else if constexpr (!buffer_view<Out>) {
    return refuse_as<typename reason::owned_memory<std::remove_cvref_t<Out>>::wrap_both_in_std_span>;
  } else {
    return refuse_memory_to_receive<In>();
  }
}

template <class T>
struct listed_objects {};
template <class T, class Allocator>
struct listed_objects<std::vector<T, Allocator>> : std::type_identity<std::vector<T>> {};
template <class... T>
struct listed_objects<std::tuple<T&...>> : std::type_identity<std::tuple<T...>> {};
template <class... T>
struct listed_objects<const std::tuple<T&...>> : std::type_identity<std::tuple<T...>> {};

/// Operations on a list of objects, which is replaced.
template <class T, class... Rest>
consteval auto refuse_list() {
  using list = listed_objects<std::remove_reference_t<T>>;
  if constexpr (requires { typename list::type; }) {
    return refuse_object<typename list::type>();
  } else {
    return refuse_as<typename reason::no_list_of_objects<
        std::remove_cvref_t<T>>::pass_a_std_vector_that_is_not_constant_or_std_tie_of_the_objects>;
  }
}

/// Results of some ranks, in a vector behind other arguments.
template <class T, class... Rest>
consteval auto refuse_results() {
  if constexpr (is_vector<std::remove_cvref_t<T>> && !serializable<std::remove_cvref_t<T>>) {
    return refuse_object<T>();
  } else if constexpr (sizeof...(Rest) > 0) {
    return refuse_results<Rest...>();
  } else {
    return no_reason();
  }
}

/// The type of a reason. Where there is none, there is no such type, and the deleted overload takes no part.
template <auto found>
using reason_of = typename decltype(found)::type;

/// Converts from device memory, and says in a compiler's message what to do. Overloads that take it, and `...`, are
/// worse than those of <hfcomm/nccl.hpp>.
struct device_memory_needs_hfcomm_nccl_hpp {
  template <device_argument R>
  device_memory_needs_hfcomm_nccl_hpp(const R& range);
};

}  // namespace hfcomm::detail
