// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ranges>
#include <source_location>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <hfcomm/call/call.hpp>
#include <hfcomm/group/work.hpp>

namespace hfcomm {

/// Stands for the sender of a message that may be any rank of the group.
struct any_source_t {
  explicit any_source_t() = default;
};
inline constexpr any_source_t any_source{};

/// A message and its sender.
template <class T>
struct received {
  T value;
  int source;
};

namespace detail {

inline constexpr int anyone = -1;

/// Whom a message may go to, or come from. A blocking message to oneself would wait for a call that this rank cannot
/// make.
enum class partner { other_rank, any_rank, unknown };

/// Checks what this rank alone can see to be wrong: no other rank knows of the message yet.
template <class Text>
void require_message(bool condition, const process_group& group, const operation& call, Text&& text) {
  if (!condition) [[unlikely]] {
    throw usage_error({group.rank(), group.size(), engines::call_name(call), 0, call.where}, text());
  }
}

inline std::shared_ptr<transfer> message(operation call, const process_group& group, movement pattern, int other,
                                         partner allowed, int tag) {
  call.pattern = pattern;
  call.root = other;
  call.tag = static_cast<std::uint64_t>(tag);
  call.timeout = group.timeout();
  const bool inside = other >= 0 && other < group.size();
  require_message(inside || allowed == partner::unknown, group, call, [&] {
    return engines::no_such_rank(pattern == movement::send ? "destination" : "source", other, group.size()) +
           (other == anyone && pattern == movement::receive ? "; any rank is any_source" : "");
  });
  require_message(tag >= 0, group, call, [&] { return "tag " + std::to_string(tag) + " is negative"; });
  require_message(allowed != partner::other_rank || other != group.rank(), group, call, [] {
    return "a blocking message to or from oneself never ends; use send_receive, or isend and irecv";
  });
  return std::make_shared<transfer>(call);
}

/// Sends, in place of what should have been sent, the text of why it was not. Nobody here waits until it is read.
inline void send_failure(const process_group& group, const operation& call, const std::string& text) {
  auto notice = std::make_shared<transfer>(call);
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  notice->object.assign(bytes, bytes + text.size());
  notice->data = notice->object;
  notice->call.bytes = text.size();
  notice->is_failure = true;
  notice->on_finish = [] { return nullptr; };
  group_access::engine(group).post({&notice, 1});
}

/// An object on its way out, encoded already: the caller may change it at once. Where serialization throws, the
/// receiver is told in its place.
template <class T>
std::shared_ptr<transfer> outgoing_object(operation_name name, const T& value, int destination, partner allowed,
                                          const process_group& group, int tag, std::source_location where) {
  auto result = message(object_call<T>(name, movement::send, destination, where), group, movement::send, destination,
                        allowed, tag);
  try {
    encode(value, result->object);
  } catch (...) {
    send_failure(group, result->call,
                 "serializing its " + std::string(result->call.type_name) + " threw: " + current_exception_text());
    throw;
  }
  result->data = result->object;
  result->call.bytes = result->data.size();
  return result;
}

/// Refuses memory that cannot be there. A receiver is told; a sender is not, as it may have nothing to send yet.
template <class R>
void require_message_memory(const process_group& group, const operation& call, const R& range) {
  if (!is_there(range) && call.pattern == movement::send) {
    send_failure(group, call, memory_problem(range));
  }
  require_message(is_there(range), group, call, [&] { return memory_problem(range); });
}

template <class R>
std::shared_ptr<transfer> outgoing_buffer(operation_name name, const R& data, int destination, partner allowed,
                                          const process_group& group, int tag, std::source_location where) {
  using T = std::ranges::range_value_t<R>;
  auto result = message(buffer_call<T>(name, movement::send, std::ranges::size(data), destination, where), group,
                        movement::send, destination, allowed, tag);
  require_message_memory(group, result->call, data);
  result->data = bytes_of(data);
  return result;
}

template <class T>
std::shared_ptr<transfer> incoming_object(operation_name name, int source, partner allowed, const process_group& group,
                                          int tag, std::source_location where) {
  return message(object_call<T>(name, movement::receive, source, where), group, movement::receive, source, allowed,
                 tag);
}

template <class R>
std::shared_ptr<transfer> incoming_buffer(operation_name name, R& data, int source, partner allowed,
                                          const process_group& group, int tag, std::source_location where) {
  using T = std::ranges::range_value_t<R>;
  auto result = message(buffer_call<T>(name, movement::receive, std::ranges::size(data), source, where), group,
                        movement::receive, source, allowed, tag);
  require_message_memory(group, result->call, data);
  result->into = writable_bytes_of(data);
  return result;
}

/// The object of a transfer that has succeeded.
template <class T>
received<T> take_object(const process_group& group, const transfer& message) {
  received<T> result{T{}, message.source};
  try {
    decode_into(result.value, message.object);
  } catch (const decode_error& problem) {
    throw decode_error({group.rank(), group.size(), engines::call_name(message.call), 0, message.call.where},
                       "the object from rank " + std::to_string(message.source) + ": " + problem.detail());
  }
  return result;
}

/// Waits for messages of this very call; throws the first one's problem.
inline void pass(const process_group& group, std::span<const std::shared_ptr<transfer>> messages) {
  const group_guard entered(group, messages.front()->call);
  auto& engine = group_access::engine(group);
  engine.post(messages);
  engine.complete(messages);
  std::exception_ptr first;
  for (const auto& one : messages) {
    // Moved: this thread is the last to hold it, not another one that has moved the message on.
    auto problem = std::exchange(one->problem, nullptr);
    first = first ? std::move(first) : std::move(problem);
  }
  if (first) {
    std::rethrow_exception(std::move(first));
  }
}

/// The state of a started message. Waiting for it moves it on.
std::shared_ptr<work_state> make_message_state(const process_group& group, const std::shared_ptr<transfer>& message);

/// Starts a message and lets it go; `take(transfer)` makes the work's value, once it has succeeded.
template <class Take>
work<std::invoke_result_t<Take&, const transfer&>> let_go(const process_group& group,
                                                          const std::shared_ptr<transfer>& message, Take take) {
  using value = std::invoke_result_t<Take&, const transfer&>;
  const group_guard entered(group, message->call);
  auto state = make_message_state(group, message);
  auto result = std::make_shared<work_value<value>>();
  message->on_finish = [state, result, message = message.get(), take = std::move(take),
                        own = thread_identity()]() mutable -> std::function<void()> {
    const acting_as own_rank(own);
    // Moved, not shared: the thread that asks for the problem is the last to hold it.
    std::exception_ptr problem = std::exchange(message->problem, nullptr);
    try {
      if (problem) {
        // nothing came
      } else if constexpr (std::is_void_v<value>) {
        take(*message);
        result->value.emplace();
      } else {
        result->value.emplace(take(*message));
      }
    } catch (...) {
      problem = std::current_exception();
    }
    const std::coroutine_handle<> waiter = state->finish(std::move(problem));
    if (!waiter) {
      return nullptr;
    }
    return [waiter, own] {
      const acting_as its_rank(own);
      waiter.resume();
    };
  };
  group_access::engine(group).post({&message, 1});
  return work<value>(std::move(state), std::move(result));
}

}  // namespace detail

}  // namespace hfcomm
