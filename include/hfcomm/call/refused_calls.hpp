// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>

#include <hfcomm/core/concepts.hpp>
#include <hfcomm/core/reduce_op.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/serialization/not_serializable.hpp>

/// Reasons why no overload takes a call. Most operations have deleted overloads for such calls, because a
/// compiler's list of all candidates says neither the reason nor the remedy. They take no part in valid calls, and a
/// requires-expression about a refused call is false, as it is without them.
namespace hfcomm::reason {

/// Elements of type T have no reductions.
template <class T>
struct not_reducible {
  struct pass_a_callable_that_combines_two_or_enable_element_type;
};

/// A reduction in place cannot write to constant elements of type T.
template <class T>
struct constant_elements {
  struct pass_another_buffer_for_the_result;
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

/// The first of the types, without reference and const; void where there are none.
template <class... Types>
struct first_type : std::type_identity<void> {};
template <class First, class... More>
struct first_type<First, More...> : std::type_identity<std::remove_cvref_t<First>> {};

template <class... Types>
using first_type_t = typename first_type<Types...>::type;

template <class T>
using why_temporary =
    typename reason::temporary_buffer<T>::it_would_be_gone_when_the_operation_runs_so_keep_it_until_the_work_is_done;

template <class R>
concept temporary_memory = buffer<R> && !lasting_buffer<R>;

/// A list of buffers, which some collectives take.
template <class L>
concept list_of_buffers = std::ranges::forward_range<L> && buffer_view<std::ranges::range_value_t<L>> &&
                          writable_buffer<std::ranges::range_reference_t<L>>;

/// Memory of which operations on buffers take one besides their first argument.
template <class R>
concept buffer_or_list = buffer<R> || list_of_buffers<R>;

/// No reason where the call is one that other overloads take; why_no_object is not asked then.
template <bool IsOther, class T>
consteval auto find_reason_for_object() {
  if constexpr (IsOther) {
    return because<reason::none>{};
  } else {
    return because<why_no_object<T>>{};
  }
}

/// Operations on one object, or on one or more buffers.
template <class T, class... Rest>
using why_no_object_or_buffers =
    typename decltype(find_reason_for_object<enable_device_range<std::remove_cvref_t<T>> ||
                                                 (buffer<T> && (buffer_or_list<Rest> || ...)),
                                             T>())::type;

/// The same for asynchronous operations. Lists of counts, which are copied, may be temporaries.
template <class T, class... Rest>
using why_no_lasting_buffers =
    std::conditional_t<temporary_memory<T> && (buffer_or_list<Rest> || ...), why_temporary<T>, reason::none>;

template <class T, class... Rest>
using why_no_object_or_lasting_buffers =
    std::conditional_t<refused<why_no_lasting_buffers<T, Rest...>>, why_no_lasting_buffers<T, Rest...>,
                       why_no_object_or_buffers<T, Rest...>>;

/// Operations on a list of objects T, or on a list of views T and other memory.
template <class T, class... Rest>
using why_no_listed_object =
    std::conditional_t<buffer_view<T> && (buffer_or_list<Rest> || ...), reason::none, why_no_object<T>>;

/// Operations on one object or one view.
template <class T>
using why_no_object_or_view =
    typename decltype(find_reason_for_object<
                      enable_device_range<std::remove_cvref_t<T>> || buffer_view<T> || list_of_buffers<T>, T>())::type;

template <class T>
using why_no_object_or_lasting_view =
    std::conditional_t<buffer_view<T> && temporary_memory<T>, why_temporary<T>, why_no_object_or_view<T>>;

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

template <class T, class Op>
using why_ambiguous = std::conditional_t<
    ambiguous_reduction<std::remove_cvref_t<T>, std::remove_cvref_t<Op>>,
    typename reason::elements_or_whole<std::remove_cvref_t<T>, std::remove_cvref_t<Op>>::
        wrap_it_in_std_span_for_element_by_element_or_spell_out_the_types_of_the_callable_s_parameters,
    reason::none>;

/// Reductions by a reduce_op. The constants of logical reductions are callables, too, for bools.
template <class T, class Op>
consteval auto find_reason_against_reduce_op() {
  using object = std::remove_cvref_t<T>;
  if constexpr (reducible_element<object> || writable_reducible_buffer<T> || combines<Op, object>) {
    return because<reason::none>{};
  } else if constexpr (reducible_buffer<T>) {
    return because<typename reason::constant_elements<element_in<T>>::pass_another_buffer_for_the_result>{};
  } else if constexpr (buffer<T>) {
    return because<
        typename reason::not_reducible<element_in<T>>::pass_a_callable_that_combines_two_or_enable_element_type>{};
  } else {
    return because<typename reason::not_reducible<object>::pass_a_callable_that_combines_two_or_enable_element_type>{};
  }
}

/// Reductions of one object or one buffer, by the first of `Rest`.
template <class T, class... Rest>
consteval auto find_reason_against_reduction() {
  using object = std::remove_cvref_t<T>;
  using op = first_type_t<Rest...>;
  if constexpr (enable_device_range<object> || list_of_buffers<T> || buffer<op> || ambiguous_reduction<object, op>) {
    return because<reason::none>{};
  } else if constexpr (no_callable<op>) {
    return find_reason_against_reduce_op<T, op>();
  } else if constexpr (refused<why_no_object_or_view<T>> || !serializable<object>) {
    return because<why_no_object_or_view<T>>{};
  } else if constexpr (!combines<op, object>) {
    return because<typename reason::not_combined<object, op>::the_callable_takes_two_of_them_and_returns_one>{};
  } else {
    return because<reason::none>{};
  }
}
template <class T, class... Rest>
using why_not_reduced = typename decltype(find_reason_against_reduction<T, Rest...>())::type;

/// The same for asynchronous reductions.
template <class T, class... Rest>
consteval auto find_reason_against_async_reduction() {
  using op = first_type_t<Rest...>;
  if constexpr (temporary_memory<T> && (buffer_view<T> || no_callable<op> || buffer<op>)) {
    return because<why_temporary<T>>{};
  } else {
    return find_reason_against_reduction<T, Rest...>();
  }
}
template <class T, class... Rest>
using why_not_reduced_async = typename decltype(find_reason_against_async_reduction<T, Rest...>())::type;

/// Receiving objects of type T. A view has its type as an argument of the template, too, where it is named.
template <class T, class... Rest>
using why_not_received = std::conditional_t<(buffer_view<Rest> || ...), reason::none, why_no_object<T>>;

/// An owner of elements where memory is needed: a std::vector, for example.
template <class R>
concept owned_buffer = buffer<R> && !buffer_view<R>;

/// Converts from device memory. Overloads that take it, and `...`, are worse than those of <hfcomm/nccl.hpp>.
struct any_device_range {
  template <class R>
    requires enable_device_range<R>
  any_device_range(const R& range);
};

}  // namespace hfcomm::detail
