// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <exception>
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
#include <hfcomm/engine/transfer.hpp>
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

/// The ranks that a message may go to, or come from. A blocking message to oneself would wait for a call that this rank
/// cannot make.
enum class partner { other_rank, any_rank, unknown };

/// Throws usage_error with the message's name.
[[noreturn]] void fail_message(const process_group& group, const operation& call, const std::string& text);

/// Throws usage_error unless `condition` holds. For what this rank alone can see: no other rank knows of the message.
template <class Text>
void require_message(bool condition, const process_group& group, const operation& call, Text&& text) {
  if (!condition) [[unlikely]] {
    fail_message(group, call, text());
  }
}

/// Returns a message to or from rank `other`, once its arguments are checked.
std::shared_ptr<transfer> message(operation call, const process_group& group, movement pattern, int other,
                                  partner allowed, int tag);

/// Sends the text of why a message could not be made, in its place. Does not wait until it is read.
void send_failure(const process_group& group, const operation& call, const std::string& text);

/// To be called in a handler: tells the receiver that serializing the message's object threw.
void send_encoding_failure(const process_group& group, const operation& call);

/// Returns an object on its way out. It is encoded already, so the caller may change it at once. Where serialization
/// throws, the receiver is told.
template <class T>
std::shared_ptr<transfer> outgoing_object(operation_name name, const T& value, int destination, partner allowed,
                                          const process_group& group, int tag, std::source_location where) {
  auto result = message(object_call<T>(name, movement::send, destination, where), group, movement::send, destination,
                        allowed, tag);
  try {
    encode(value, result->object);
  } catch (...) {
    send_encoding_failure(group, result->call);
    throw;
  }
  result->data = result->object;
  result->call.bytes = result->data.size();
  return result;
}

/// Throws usage_error for memory that cannot be there. A receiver is told; a sender is not, as it may have nothing to
/// send yet.
[[noreturn]] void fail_message_memory(const process_group& group, const operation& call, const std::string& problem);

template <class R>
void require_message_memory(const process_group& group, const operation& call, const R& range) {
  if (!is_there(range)) [[unlikely]] {
    fail_message_memory(group, call, memory_problem(range));
  }
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

/// Throws decode_error for a received object.
[[noreturn]] void fail_to_decode(const process_group& group, const transfer& message, const decode_error& problem);

/// Returns the object of a transfer that has succeeded.
template <class T>
received<T> take_object(const process_group& group, const transfer& message) {
  received<T> result{T{}, message.source};
  try {
    decode_into(result.value, message.object);
  } catch (const decode_error& problem) {
    fail_to_decode(group, message, problem);
  }
  return result;
}

/// Posts messages of this very call and waits until all are finished. Throws the first one's problem.
void pass(const process_group& group, std::span<const std::shared_ptr<transfer>> messages);

/// Makes the value of a message that has succeeded.
class message_value_maker {
 public:
  message_value_maker() = default;
  message_value_maker(const message_value_maker&) = delete;
  message_value_maker& operator=(const message_value_maker&) = delete;
  virtual ~message_value_maker() = default;
  virtual void make(const transfer& message) = 0;
};

template <class Take, class Value>
class taken_message final : public message_value_maker, public work_value<Value> {
 public:
  explicit taken_message(Take take) : take_(std::move(take)) {}

  void make(const transfer& message) override {
    if constexpr (std::is_void_v<Value>) {
      take_(message);
      this->value.emplace();
    } else {
      this->value.emplace(take_(message));
    }
  }

 private:
  Take take_;
};

/// Starts a message and returns at once; `result` is asked for the work's value when the message has succeeded.
std::shared_ptr<work_state> start_message(const process_group& group, const std::shared_ptr<transfer>& message,
                                          std::shared_ptr<message_value_maker> result);

/// The same, as a work whose value is `take(transfer)`.
template <class Take>
work<std::invoke_result_t<Take&, const transfer&>> start_message(const process_group& group,
                                                                 const std::shared_ptr<transfer>& message, Take take) {
  using value = std::invoke_result_t<Take&, const transfer&>;
  auto result = std::make_shared<taken_message<Take, value>>(std::move(take));
  auto state = start_message(group, message, std::shared_ptr<message_value_maker>(result));
  return work<value>(std::move(state), std::move(result));
}

}  // namespace detail

}  // namespace hfcomm
