// SPDX-License-Identifier: MIT
#pragma once

#include <cstring>
#include <source_location>
#include <utility>

#include <hfcomm/collectives/call.hpp>

namespace hfcomm {

/// Gives every rank the root's object. On the other ranks `value` is replaced, whatever its size was; where decoding
/// fails it keeps what it had.
template <serializable T>
void broadcast(T& value, int root = 0, const process_group& group = world(),
               std::source_location where = std::source_location::current()) {
  auto call = detail::object_call<T>("broadcast", movement::from_root, root, where);
  detail::running_call running(group, call);
  running.require_root();
  std::span<const std::byte> mine;
  if (group.rank() == root) {
    mine = detail::encode_contribution(running, call, value);
  }
  const auto store = [&](int, T&& received) { value = std::move(received); };
  detail::object_receiver<T, decltype(store)> received(running, store);
  running.engine().exchange(call, mine, received);
}

/// Gives every rank the root's elements, in place. The buffers must be equally long (mismatch_error otherwise).
template <buffer_view R>
  requires writable_buffer<R>
void broadcast(R&& data, int root = 0, const process_group& group = world(),
               std::source_location where = std::source_location::current()) {
  auto call = detail::buffer_call<std::ranges::range_value_t<R>>("broadcast", movement::from_root,
                                                                 std::ranges::size(data), root, where);
  detail::running_call running(group, call);
  running.require_root();
  const auto bytes = detail::writable_bytes_of(data);

  struct in_place final : receiver {
    explicit in_place(std::span<std::byte> to) : target(to) {}
    void receive(int, std::span<const std::byte> chunk, std::uint64_t offset, std::uint64_t) override {
      if (!chunk.empty()) {
        std::memcpy(target.data() + offset, chunk.data(), chunk.size());
      }
    }
    std::span<std::byte> target;
  } received(bytes);
  running.engine().exchange(call, bytes, received);
}

}  // namespace hfcomm
