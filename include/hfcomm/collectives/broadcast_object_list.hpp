// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <cstring>
#include <source_location>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <hfcomm/collectives/broadcast.hpp>

namespace hfcomm {

namespace detail {

/// Objects of several types as one message: each behind its size, so that none can read into the next.
template <class... T>
class object_row {
 public:
  static void encode_to(std::vector<std::byte>& message, const std::tuple<T&...>& objects) {
    message.clear();
    std::apply([&](const auto&... object) { (append(message, object), ...); }, objects);
  }

  static std::tuple<T...> decoded(std::span<const std::byte> message) {
    std::tuple<T...> objects;
    std::size_t index = 0;
    std::apply([&](auto&... object) { (take(message, object, index++), ...); }, objects);
    if (!message.empty()) {
      throw decode_error({}, std::to_string(message.size()) + " bytes are left over");
    }
    return objects;
  }

 private:
  template <class Object>
  static void append(std::vector<std::byte>& message, const Object& object) {
    const std::size_t place = message.size();
    message.resize(place + sizeof(std::uint64_t));
    encode(object, message);
    const std::uint64_t size = message.size() - place - sizeof(size);
    std::memcpy(message.data() + place, &size, sizeof(size));
  }

  template <class Object>
  static void take(std::span<const std::byte>& message, Object& object, std::size_t index) {
    std::uint64_t size = 0;
    if (message.size() < sizeof(size)) {
      throw decode_error({}, "object " + std::to_string(index) + " is missing");
    }
    std::memcpy(&size, message.data(), sizeof(size));
    message = message.subspan(sizeof(size));
    if (size > message.size()) {
      throw decode_error({}, "object " + std::to_string(index) + " is cut off");
    }
    try {
      decode_into(object, message.first(static_cast<std::size_t>(size)));
    } catch (const decode_error& problem) {
      throw decode_error({}, "object " + std::to_string(index) + ": " + problem.detail());
    }
    message = message.subspan(static_cast<std::size_t>(size));
  }
};

/// Keeps a message of bytes whole until it is complete.
class message_receiver final : public receiver {
 public:
  void receive(int /*source*/, std::span<const std::byte> chunk, std::uint64_t /*offset*/,
               std::uint64_t total) override {
    message_.reserve(static_cast<std::size_t>(total));
    message_.insert(message_.end(), chunk.begin(), chunk.end());
  }
  [[nodiscard]] std::span<const std::byte> message() const noexcept { return message_; }

 private:
  std::vector<std::byte> message_;
};

}  // namespace detail

/// Gives every rank the root's list, in one exchange. On the other ranks `list` is replaced, whatever its length was;
/// where decoding fails it keeps what it had. (torch's and MMEngine's `broadcast_object_list`, which want lists of
/// equal length.)
template <class T>
  requires serializable<std::vector<T>>
void broadcast_object_list(std::vector<T>& list, int root = 0, const process_group& group = world(),
                           std::source_location where = std::source_location::current()) {
  detail::broadcast_object("broadcast_object_list", list, root, group, where);
}

/// Gives every rank the root's objects, which may be of different types, in one exchange:
///
///     hfcomm::broadcast_object_list(std::tie(names, settings, step));
///
/// The ranks name as many objects, of the same types (mismatch_error otherwise). On the other ranks the objects are
/// replaced, all of them or, where one cannot be decoded (decode_error) none.
template <serializable... T>
void broadcast_object_list(const std::tuple<T&...>& objects, int root = 0, const process_group& group = world(),
                           std::source_location where = std::source_location::current()) {
  auto call = detail::object_call<std::tuple<T...>>("broadcast_object_list", movement::from_root, root, where);
  detail::running_call running(group, call);
  running.require_root();
  auto& bytes = running.scratch();
  bytes.clear();
  if (group.rank() == root) {
    running.attempt("serializing its objects threw: ", [&] { detail::object_row<T...>::encode_to(bytes, objects); });
    call.bytes = bytes.size();
  }
  detail::message_receiver received;
  running.engine().exchange(call, bytes, received);
  if (group.rank() != root) {
    try {
      auto targets = objects;
      targets = detail::object_row<T...>::decoded(received.message());
    } catch (const decode_error& problem) {
      throw decode_error(running.context(), "the objects from rank " + std::to_string(root) + ": " + problem.detail());
    }
  }
}

/// Starts to broadcast a list, which must stay, untouched, until the work is done.
template <class T>
  requires serializable<std::vector<T>>
work<void> broadcast_object_list_async(std::vector<T>& list, int root = 0, const process_group& group = world(),
                                       std::source_location where = std::source_location::current()) {
  return detail::start("broadcast_object_list", group, where,
                       [&list, root, group, where] { broadcast_object_list(list, root, group, where); });
}

/// Starts to broadcast several objects, which must stay, untouched, until the work is done.
template <serializable... T>
work<void> broadcast_object_list_async(std::tuple<T&...> objects, int root = 0, const process_group& group = world(),
                                       std::source_location where = std::source_location::current()) {
  return detail::start("broadcast_object_list", group, where,
                       [objects, root, group, where] { broadcast_object_list(objects, root, group, where); });
}

}  // namespace hfcomm
