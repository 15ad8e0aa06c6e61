// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <span>
#include <tuple>
#include <type_traits>
#include <vector>

#include <hfcomm/call/argument_kinds.hpp>
#include <hfcomm/call/refusal_reasons.hpp>
#include <hfcomm/core/concepts.hpp>
#include <hfcomm/core/reduce_op.hpp>
#include <hfcomm/serialization/not_serializable.hpp>

/// Most operations have a deleted overload for calls that no other overload takes, because a compiler's list of all
/// candidates says neither the reason nor the remedy. Its last parameter is the reason, of which there is none in valid
/// calls. A requires-expression about a refused call is false, as it is without that overload. Each function below
/// finds the reason for one kind of call.
namespace hfcomm::detail {

/// The result of a refused call. It converts to anything, so that a compiler says no more about the call.
struct refused_result {
  template <class T>
  operator T() const;
};

using no_reason = because<reason::none>;
template <class Why>
inline constexpr because<Why> refuse_as{};

/// The first of the types; void where there are none.
template <class... Types>
struct first_type : std::type_identity<void> {};
template <class First, class... More>
struct first_type<First, More...> : std::type_identity<First> {};
template <class... Types>
using first_type_t = typename first_type<Types...>::type;

/// Why an object is refused.
template <class T>
consteval auto refuse_object() {
  return find_reason_against_object<std::remove_cvref_t<T>>();
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
  return refuse_temporary<T, (buffer_view<T> || no_callable<op>)>(refuse_reduction<T, Rest...>());
}

/// Reductions with a root behind the memory.
template <class T, class Second = void, class Third = void, class... Rest>
consteval auto refuse_rooted_reduction() {
  if constexpr (memory_argument<Second>) {
    return refuse_reduced_parts<T, Second, Rest...>();
  } else if constexpr (!std::convertible_to<Second, int>) {
    return no_reason();  // a function of another library
  } else {
    return refuse_reduction<T, Third, Rest...>();
  }
}
template <class T, class Second = void, class Third = void, class... Rest>
consteval auto refuse_rooted_reduction_later() {
  if constexpr (memory_argument<Second>) {
    return refuse_reduced_parts_later<T, Second, Rest...>();
  } else if constexpr (!std::convertible_to<Second, int>) {
    return no_reason();
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
  requires refused<typename decltype(found)::type>
using reason_of = typename decltype(found)::type;

/// Converts from device memory, and says in a compiler's message what to do. Overloads that take it, and `...`, are
/// worse than those of <hfcomm/nccl.hpp>.
struct device_memory_needs_hfcomm_nccl_hpp {
  template <device_argument R>
  device_memory_needs_hfcomm_nccl_hpp(const R& range);
};

}  // namespace hfcomm::detail
