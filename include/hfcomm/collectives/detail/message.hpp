// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/collectives/envelope.hpp>
#include <hfcomm/core/call_site.hpp>
#include <hfcomm/engine/transfer.hpp>
#include <hfcomm/group/work.hpp>
#include <hfcomm/group/work_coroutine.hpp>

namespace hfcomm::detail {

inline constexpr int any_source_rank = -1;

/// The ranks that a message may be sent to or received from. A blocking message to oneself would wait for a call that
/// this rank cannot make.
enum class allowed_peer { other_rank, any_rank, unknown };

/// Throws usage_error with the message's name.
[[noreturn]] void fail_message(const process_group& group, const operation& call, const std::string& text);

/// Throws usage_error unless `condition` holds. Tells no other rank, because no other rank knows of the message.
template <class Text>
void require_message(bool condition, const process_group& group, const operation& call, Text&& text) {
  if (!condition) [[unlikely]] {
    fail_message(group, call, text());
  }
}

/// Returns the call of a message to or from rank `other`, once its arguments are checked.
operation addressed(operation call, const process_group& group, movement pattern, int other, allowed_peer allowed,
                    message_tag tag);

/// Returns a message whose arguments are checked. One to or from null_rank is finished.
std::shared_ptr<transfer> unsent_message(const operation& call);

/// Returns a message to or from rank `other`, once its arguments are checked. One to or from null_rank is finished.
std::shared_ptr<transfer> message(operation call, const process_group& group, movement pattern, int other,
                                  allowed_peer allowed, message_tag tag);

/// Returns the call with a message's tag.
inline operation tagged(operation call, int tag) {
  call.tag = static_cast<std::uint64_t>(tag);
  return call;
}

/// Sends, instead of a message, the reason why it could not be made. Does not wait until that is received.
void send_failure(const process_group& group, const operation& call, const std::string& text);

/// Takes the next message that `call.root` sends, if it is a rank, and tells it the reason why this rank cannot receive
/// it. Does not wait for it.
void refuse_message(const process_group& group, const operation& call, const std::string& text);

/// Returns the notice of a failure that is posted instead of a message to send.
std::shared_ptr<transfer> failed_message_to_send(const operation& call, const std::string& text);

/// Returns the text for the receiver of an object whose serialization threw. To be called in a handler.
[[nodiscard]] std::string encoding_failure_text(const operation& call);
/// To be called in a handler: tells the receiver, and throws the exception again, with the call where it names none.
[[noreturn]] void fail_to_encode(const process_group& group, const operation& call);

/// Returns the transfer of an object to send, which is not encoded yet.
template <class T>
std::shared_ptr<transfer> outgoing_object_call(operation_name name, int destination, allowed_peer allowed,
                                               const process_group& group, int tag, call_site where) {
  return message(object_call<T>(name, movement::send, destination, where), group, movement::send, destination, allowed,
                 tag);
}

/// Encodes the object of a message, which the caller may change then.
template <class T>
void encode_message(const T& value, transfer& message) {
  encode(value, message.object);
  message.data = message.object;
  message.call.bytes = message.data.size();
}

/// Returns the transfer of an object to send, encoded. The receiver is told if serialization throws.
template <class T>
std::shared_ptr<transfer> outgoing_object(operation_name name, const T& value, int destination, allowed_peer allowed,
                                          const process_group& group, int tag, call_site where) {
  auto result = outgoing_object_call<T>(name, destination, allowed, group, tag, where);
  try {
    encode_message(value, *result);
  } catch (...) {
    fail_to_encode(group, result->call);
  }
  return result;
}

/// Throws usage_error for an impossible buffer. Where this rank sends, the receiver is told. Where it receives, the
/// sender is not told, because it may have nothing to send yet.
[[noreturn]] void fail_message_memory(const process_group& group, const operation& call, const std::string& problem);
void require_message_memory(const process_group& group, const operation& call, const const_elements& range);

template <class R>
std::shared_ptr<transfer> outgoing_buffer(operation_name name, const R& data, int destination, allowed_peer allowed,
                                          const process_group& group, int tag, call_site where) {
  auto result = message(buffer_call(name, movement::send, data, destination, where), group, movement::send, destination,
                        allowed, tag);
  require_message_memory(group, result->call, elements_of(data));
  result->data = bytes_of(data);
  return result;
}

/// Returns the ranks that a receive of any of these may wait for, where a rank must be `otherwise`.
[[nodiscard]] constexpr allowed_peer allowed_source(message_source source, allowed_peer otherwise) noexcept {
  return source.is_any() ? allowed_peer::unknown : otherwise;
}

template <class T>
std::shared_ptr<transfer> incoming_object(operation_name name, message_source source, allowed_peer allowed,
                                          const process_group& group, message_tag tag, call_site where) {
  return message(object_call<T>(name, movement::receive, source.rank(), where), group, movement::receive, source.rank(),
                 allowed_source(source, allowed), tag);
}

template <class R>
std::shared_ptr<transfer> incoming_buffer(operation_name name, R& data, message_source source, allowed_peer allowed,
                                          const process_group& group, message_tag tag, call_site where) {
  auto result = message(buffer_call(name, movement::receive, data, source.rank(), where), group, movement::receive,
                        source.rank(), allowed_source(source, allowed), tag);
  require_message_memory(group, result->call, elements_of(data));
  result->into = writable_bytes_of(data);
  return result;
}

/// Throws decode_error for a received object.
[[noreturn]] void fail_to_decode(const process_group& group, const transfer& message, const decode_error& problem);

/// Replaces `value` by the object of a transfer that has succeeded; leaves it as it is where nobody has sent any.
template <class T>
void take_object(const process_group& group, const transfer& message, T& value) {
  if (message.source == null_rank) {
    return;
  }
  try {
    decode_into(value, message.object);
  } catch (const decode_error& problem) {
    fail_to_decode(group, message, problem);
  }
}

/// Returns the object of a transfer that has succeeded; a default-constructed one where nobody has sent any.
template <class T>
T take_value(const process_group& group, const transfer& message) {
  T value{};
  take_object(group, message, value);
  return value;
}

/// Returns the object of a transfer and its sender, in the same way.
template <class T>
received<T> take_object(const process_group& group, const transfer& message) {
  received<T> result{T{}, message.source};
  take_object(group, message, result.value);
  return result;
}

/// Returns the object of a transfer, its sender and its tag, in the same way.
template <class T>
received_with_tag<T> take_object_with_tag(const process_group& group, const transfer& message) {
  received_with_tag<T> result{T{}, message.source, static_cast<int>(message.tag)};
  take_object(group, message, result.value);
  return result;
}

/// Throws usage_error for a blocking receive from any rank where there is no other.
void require_other_rank(const process_group& group, const operation& call);

/// Returns the envelope of a message that was received or found.
[[nodiscard]] message_info info_of(const transfer& message) noexcept;

/// Completes one message; throws usage_error for a receive from any rank where there is no other.
void complete_message(const process_group& group, const std::shared_ptr<transfer>& message);

/// Posts the messages of one call that are not finished yet, and waits until all are, but for notices of failures.
/// Throws the error of the first that failed.
void complete_messages(const process_group& group, std::span<const std::shared_ptr<transfer>> messages);

/// Starts a message and returns at once. When the message has succeeded, `result` runs.
std::shared_ptr<work_state> start_message(const process_group& group, const std::shared_ptr<transfer>& message,
                                          std::shared_ptr<started_call> result);

/// Starts a message, and returns a work whose value is `take(transfer)`.
template <class Take>
work<std::invoke_result_t<Take&, const transfer&>> start_message(const process_group& group,
                                                                 const std::shared_ptr<transfer>& message, Take take) {
  using value = std::invoke_result_t<Take&, const transfer&>;
  auto function = [take = std::move(take), from = message.get()]() mutable {
    return take(*from);
  };  // the message owns this
  auto shared = share_function(std::move(function));
  auto state = start_message(group, message, std::move(shared.call));
  return work<value>(std::move(state), std::move(shared.value));
}

}  // namespace hfcomm::detail
