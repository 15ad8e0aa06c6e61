// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <utility>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/collectives/detail/buffer_collectives.hpp>
#include <hfcomm/core/call_site.hpp>

namespace hfcomm {

namespace detail {

/// Gives every rank the root's object, in `value`.
template <class T>
void broadcast_object(operation&& call, T& value, const process_group& group) {
  running_call running(group, call);
  running.require_root();
  running.allow_early_leave();
  std::span<const std::byte> mine;
  if (group.rank() == call.root) {
    mine = encode_contribution(running, call, value);
  }
  const auto store = [&](int, T&& received) { value = std::move(received); };
  object_receiver<T, decltype(store)> received(running, store);
  running.engine().exchange(call, mine, received);
}

/// Starts the same; the object must stay, untouched, until the work is done.
template <class T>
work<void> start_broadcast(const operation& call, T& value, const process_group& group) {
  const auto run = [](operation&& begun, T* to, const process_group& its_group) {
    broadcast_object(std::move(begun), *to, its_group);
  };
  return start_on(call, check_root, run, group, std::addressof(value));
}

}  // namespace detail

/// Gives every rank the root's object. On the other ranks `value` is replaced, whatever its size was. If decoding
/// fails, `value` is unchanged.
template <serializable T>
void broadcast(T& value, detail::optional_root root = 0, detail::or_group group = {},
               call_site where = call_site::current()) {
  detail::broadcast_object(detail::object_call<T>("broadcast", engines::movement::from_root, root, where), value,
                           root.in(group, where));
}

/// Gives every rank the root's elements, in place. The buffers must be equally long (mismatch_error otherwise).
template <buffer_view R>
  requires writable_buffer<R>
void broadcast(R&& data, detail::optional_root root = 0, detail::or_group group = {},
               call_site where = call_site::current()) {
  detail::broadcast_buffer(detail::buffer_call("broadcast", engines::movement::from_root, data, root, where),
                           detail::writable_elements_of(data), root.in(group, where));
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_to_write<A...>()>>
detail::refused_result broadcast(A&&...) = delete;  // Why says the reason and what to do
void broadcast(detail::device_memory_needs_hfcomm_nccl_hpp, ...) = delete;

/// Starts to broadcast an object, which must stay, untouched, until the work is done.
template <serializable T>
work<void> broadcast_async(T& value, detail::optional_root root = 0, detail::or_group group = {},
                           call_site where = call_site::current()) {
  return detail::start_broadcast(detail::object_call<T>("broadcast", engines::movement::from_root, root, where), value,
                                 root.in(group, where));
}

/// Starts to broadcast a view's elements, which must stay until the work is done.
template <buffer_view R>
  requires writable_buffer<R> && lasting_buffer<R>
work<void> broadcast_async(R&& data, detail::optional_root root = 0, detail::or_group group = {},
                           call_site where = call_site::current()) {
  return detail::start_on(detail::buffer_call("broadcast", engines::movement::from_root, data, root, where),
                          detail::check_broadcast, detail::broadcast_buffer, root.in(group, where),
                          detail::writable_elements_of(data));
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_to_write_later<A...>()>>
detail::refused_result broadcast_async(A&&...) = delete;  // Why says the reason and what to do
void broadcast_async(detail::device_memory_needs_hfcomm_nccl_hpp, ...) = delete;

}  // namespace hfcomm
