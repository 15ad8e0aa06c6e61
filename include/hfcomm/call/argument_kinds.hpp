// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <span>
#include <string>
#include <type_traits>

#include <hfcomm/core/concepts.hpp>
#include <hfcomm/core/device_span.hpp>
#include <hfcomm/core/reduce_op.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/serialization/serializable.hpp>

/// Kinds of arguments: memory, lists of memory, operations, callables.
namespace hfcomm::detail {

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

}  // namespace hfcomm::detail
