// SPDX-License-Identifier: MIT
#pragma once

#include <type_traits>

#include <hfcomm/call/argument_kinds.hpp>
#include <hfcomm/call/refusal_reasons.hpp>
#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/core/concepts.hpp>

/// Reasons why no overload takes a message: see refused_calls.hpp.
namespace hfcomm::detail {

/// Receiving objects of type T. A view has its type as an argument of the template, too, where it is named.
template <class T, class... Rest>
consteval auto refuse_received_object() {
  if constexpr ((buffer_view<Rest> || ...)) {
    return no_reason();
  } else {
    return refuse_object<T>();
  }
}

/// Receiving into memory from a source. Functions of the same name that other libraries have, such as POSIX's, have no
/// memory in front, or a pointer behind it.
template <class R, class Source = void, class... Rest>
consteval auto refuse_memory_to_receive() {
  if constexpr (device_argument<R> || std::is_pointer_v<std::decay_t<Source>> || std::is_void_v<Source> ||
                !(memory_argument<R> || std::is_arithmetic_v<std::remove_cvref_t<R>>)) {
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
    return refuse_memory_to_receive<In, int>();
  }
}

}  // namespace hfcomm::detail
