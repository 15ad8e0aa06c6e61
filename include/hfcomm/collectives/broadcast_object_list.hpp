// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/collectives/broadcast.hpp>
#include <hfcomm/collectives/detail/sized_part.hpp>
#include <hfcomm/core/call_site.hpp>
#include <hfcomm/serialization/encoding.hpp>

namespace hfcomm {

namespace detail {

/// Returns one object's bytes and removes them from the front of `message`. Throws decode_error.
std::span<const std::byte> take_object_bytes(std::span<const std::byte>& message, std::size_t index);
/// Throws decode_error unless `message` is empty.
void require_end_of_objects(std::span<const std::byte> message);
/// Throws decode_error that names the object.
[[noreturn]] void fail_object(std::size_t index, const decode_error& problem);

/// Encoding of objects of several types in one message. Each stands behind its size, so that decoding one cannot read
/// into the next.
template <class... T>
class object_sequence {
 public:
  static void encode_to(std::vector<std::byte>& message, const std::tuple<T&...>& objects) {
    message.clear();
    std::apply([&](const auto&... object) { (append(message, object), ...); }, objects);
  }

  /// Replaces all objects, or none where it throws decode_error.
  static void decode_from(std::span<const std::byte> message, const std::tuple<T&...>& objects) {
    std::tuple<new_object<T>...> decoded;
    std::size_t index = 0;
    std::apply([&](auto&... object) { (take(message, *object, index++), ...); }, decoded);
    require_end_of_objects(message);
    const auto replace = [&](T&... to) { std::apply([&](auto&... from) { ((to = std::move(*from)), ...); }, decoded); };
    std::apply(replace, objects);
  }

 private:
  template <class Object>
  static void append(std::vector<std::byte>& message, const Object& object) {
    const std::size_t start = begin_sized_part(message);
    encode(object, message);
    end_sized_part(message, start);
  }

  template <class Object>
  static void take(std::span<const std::byte>& message, Object& object, std::size_t index) {
    const auto bytes = take_object_bytes(message, index);
    try {
      decode_into(object, bytes);
    } catch (const decode_error& problem) {
      fail_object(index, problem);
    }
  }
};

/// Broadcasts the objects of the root, which are in `running.scratch()`. Returns the root's message on the other ranks.
std::vector<std::byte> exchange_objects(running_call& running, const operation& call);

/// Throws decode_error for the root's objects.
[[noreturn]] void fail_objects(const running_call& running, int root, const decode_error& problem);

/// Gives every rank the root's objects.
template <class... T>
void broadcast_objects(operation&& call, const std::tuple<T&...>& objects, const process_group& group) {
  running_call running(group, call);
  running.require_root();
  auto& bytes = running.scratch();
  bytes.clear();
  if (group.rank() == call.root) {
    running.attempt("serializing its objects threw: ", [&] { object_sequence<T...>::encode_to(bytes, objects); });
    call.bytes = bytes.size();
  }
  const std::vector<std::byte> received = exchange_objects(running, call);
  if (group.rank() != call.root) {
    try {
      object_sequence<T...>::decode_from(received, objects);
    } catch (const decode_error& problem) {
      fail_objects(running, call.root, problem);
    }
  }
}

}  // namespace detail

/// Gives every rank the root's list, in one exchange. On the other ranks `list` is replaced, whatever its length was.
/// If decoding fails, `list` is unchanged. (torch's and MMEngine's `broadcast_object_list`, which want lists of equal
/// length.)
template <class T>
  requires serializable<std::vector<T>>
void broadcast_object_list(std::vector<T>& list, detail::optional_root root = 0, detail::or_group group = {},
                           call_site where = call_site::current()) {
  detail::broadcast_object(
      detail::object_call<std::vector<T>>("broadcast_object_list", engines::movement::from_root, root, where), list,
      root.in(group, where));
}

/// Gives every rank the root's objects, which may be of different types, in one exchange:
///
///     hfcomm::broadcast_object_list(std::tie(names, settings, step));
///
/// The ranks name as many objects, of the same types (mismatch_error otherwise). On the other ranks all objects are
/// replaced; none is where one of them cannot be decoded (decode_error).
template <serializable... T>
void broadcast_object_list(const std::tuple<T&...>& objects, detail::optional_root root = 0,
                           detail::or_group group = {}, call_site where = call_site::current()) {
  detail::broadcast_objects(
      detail::object_call<std::tuple<T...>>("broadcast_object_list", engines::movement::from_root, root, where),
      objects, root.in(group, where));
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_list<A...>()>>
detail::refused_result broadcast_object_list(A&&...) = delete;  // Why says the reason and what to do

/// Starts to broadcast a list, which must stay, untouched, until the work is done.
template <class T>
  requires serializable<std::vector<T>>
work<void> broadcast_object_list_async(std::vector<T>& list, detail::optional_root root = 0,
                                       detail::or_group group = {}, call_site where = call_site::current()) {
  return detail::start_broadcast(
      detail::object_call<std::vector<T>>("broadcast_object_list", engines::movement::from_root, root, where), list,
      root.in(group, where));
}

/// Starts to broadcast several objects, which must stay, untouched, until the work is done.
template <serializable... T>
work<void> broadcast_object_list_async(std::tuple<T&...> objects, detail::optional_root root = 0,
                                       detail::or_group group = {}, call_site where = call_site::current()) {
  return detail::start_on(
      detail::object_call<std::tuple<T...>>("broadcast_object_list", engines::movement::from_root, root, where),
      detail::check_root, detail::broadcast_objects<T...>, root.in(group, where), objects);
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_list<A...>()>>
detail::refused_result broadcast_object_list_async(A&&...) = delete;  // Why says the reason and what to do

}  // namespace hfcomm
