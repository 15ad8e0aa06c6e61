// SPDX-License-Identifier: MIT
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <source_location>
#include <utility>
#include <vector>

#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/collectives/detail/message.hpp>

namespace hfcomm {

/// A batch of messages that are sent and received at once: in `run`, none waits for another. `run` throws the
/// exception of the first object that could not be encoded, else the first error in the order of the calls, after all
/// messages have ended. A batch can be filled and run again.
///
///     message_batch batch(group);
///     batch.send(std::span(left_edge), left).recv(std::span(left_halo), left);
///     batch.send(std::span(right_edge), right).recv(std::span(right_halo), right);
///     batch.run();
///
/// Objects to send are copied; buffers, and the objects to receive, must stay until `run` returns. Where one message
/// fails, no object is received. Bad arguments are a usage_error where they are given, and the batch stays as it was.
/// The peers of a batch that is destroyed before it has run throw peer_error instead of waiting.
/// Thread-safety: one thread at a time. (torch's `batch_isend_irecv`.)
class message_batch {
 public:
  explicit message_batch(const process_group& group = world()) : group_(group) {}
  message_batch(message_batch&&) = default;
  message_batch& operator=(message_batch&& other) noexcept;
  ~message_batch();

  /// Adds an object to send. If its serialization throws, `run` tells the receiver in this message's place, and throws
  /// the exception.
  template <serializable T>
  message_batch& send(const T& value, int destination, int tag = 0,
                      std::source_location where = std::source_location::current()) {
    auto out = detail::outgoing_object_call<T>("message_batch::send", destination, detail::allowed_peer::any_rank,
                                               group_, tag, where);
    try {
      detail::encode_message(value, *out);
    } catch (...) {
      return add_failure(*out);
    }
    return add(std::move(out));
  }
  template <buffer_view R>
  message_batch& send(const R& data, int destination, int tag = 0,
                      std::source_location where = std::source_location::current()) {
    return add(detail::outgoing_buffer("message_batch::send", data, destination, detail::allowed_peer::any_rank, group_,
                                       tag, where));
  }
  template <serializable T>
  message_batch& recv(T& value, int source, int tag = 0, std::source_location where = std::source_location::current()) {
    add(detail::incoming_object<T>("message_batch::recv", source, detail::allowed_peer::any_rank, group_, tag, where));
    if (source == null_rank) {
      return *this;  // the object stays as it is
    }
    after_.emplace_back([group = group_, &value, message = messages_.back()] {
      value = detail::take_object<T>(group, *message).value;
    });
    return *this;
  }
  template <buffer_view R>
    requires writable_buffer<R>
  message_batch& recv(R&& data, int source, int tag = 0, std::source_location where = std::source_location::current()) {
    add(detail::incoming_buffer("message_batch::recv", data, source, detail::allowed_peer::any_rank, group_, tag,
                                where));
    return *this;
  }

  template <class T, class... Rest, class Why = detail::why_no_object_or_view<T>>
    requires detail::refused<Why>
  message_batch& send(T&&, Rest&&...) = delete;  // not serializable: Why says what to do
  template <class T, class... Rest, class Why = detail::why_no_object_or_view<T>>
    requires detail::refused<Why>
  message_batch& recv(T&&, Rest&&...) = delete;  // not serializable: Why says what to do

  /// Sends and receives everything, and empties the batch.
  void run();

 private:
  message_batch& add(std::shared_ptr<engines::transfer> message);
  /// Adds, instead of a message, the text of the exception that is being handled.
  message_batch& add_failure(const engines::transfer& message);

  process_group group_;
  std::vector<std::shared_ptr<engines::transfer>> messages_;
  std::vector<std::function<void()>> after_;
  std::exception_ptr problem_;  // of the first object that could not be encoded
};

}  // namespace hfcomm
