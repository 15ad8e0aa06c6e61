// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/collectives/detail/message.hpp>
#include <hfcomm/core/call_site.hpp>

namespace hfcomm {

/// A batch of messages that are sent and received at once: in `run`, none waits for another. `run` throws the
/// exception of the first object that could not be encoded, else the first error in the order of the calls, after all
/// messages have ended.
///
///     message_batch batch(group);
///     batch.send(std::span(left_edge), left).recv(std::span(left_halo), left);
///     batch.send(std::span(right_edge), right).recv(std::span(right_halo), right);
///     for (...) {
///       batch.run();
///       update(cells);
///     }
///
/// A batch runs again with the same messages, which have what is in their buffers then. The first message that is added
/// after that begins another batch in its place. Objects to send are copied when they are added, so a batch with any
/// runs once; `run` throws usage_error the second time, and their receivers throw peer_error.
///
/// Buffers, and the objects to receive, must stay until `run` returns or the work of `start` is done. Where one message
/// fails, no object is received. Bad arguments are a usage_error where they are given, and the batch stays as it was.
/// The peers of a batch that is destroyed before it has run throw peer_error instead of waiting.
/// Thread-safety: one thread at a time. (torch's `batch_isend_irecv`, MPI's persistent requests.)
class message_batch {
 public:
  explicit message_batch(const process_group& group = world()) : group_(group) {}
  message_batch(message_batch&&) = default;
  message_batch& operator=(message_batch&& other) noexcept;
  ~message_batch();

  /// Adds an object to send. If its serialization throws, `run` tells the receiver in this message's place, and throws
  /// the exception.
  template <serializable T>
  message_batch& send(const T& value, int destination, int tag = 0, call_site where = call_site::current()) {
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
  message_batch& send(const R& data, int destination, int tag = 0, call_site where = call_site::current()) {
    return add(detail::outgoing_buffer("message_batch::send", data, destination, detail::allowed_peer::any_rank, group_,
                                       tag, where));
  }
  template <serializable T>
  message_batch& recv(T& value, int source, int tag = 0, call_site where = call_site::current()) {
    add(detail::incoming_object<T>("message_batch::recv", source, detail::allowed_peer::any_rank, group_, tag, where));
    if (source == null_rank) {
      return *this;  // the object stays as it is
    }
    objects_.push_back({messages_.size() - 1, [group = group_, &value](const engines::transfer& message) {
                          detail::new_object<T> taken;
                          detail::take_object(group, message, *taken);
                          value = std::move(*taken);
                        }});
    return *this;
  }
  template <buffer_view R>
    requires writable_buffer<R>
  message_batch& recv(R&& data, int source, int tag = 0, call_site where = call_site::current()) {
    add(detail::incoming_buffer("message_batch::recv", data, source, detail::allowed_peer::any_rank, group_, tag,
                                where));
    return *this;
  }

  // Calls that are refused; see call/refused_calls.hpp.
  template <class T, class... Rest,
            class Why = detail::reason_of<detail::refuse_device<T>(detail::refuse_object_or_view<T>())>>
  message_batch& send(T&&, Rest&&...) = delete;  // Why says the reason and what to do
  template <class T, class... Rest,
            class Why = detail::reason_of<detail::refuse_device<T>(detail::refuse_to_write<T>())>>
  message_batch& recv(T&&, Rest&&...) = delete;  // Why says the reason and what to do

  /// Sends and receives everything.
  void run(call_site where = call_site::current());

  /// Starts to send and receive everything. The work throws what `run` throws. Until it is done, the batch cannot run
  /// again (usage_error). It may be destroyed.
  work<void> start(call_site where = call_site::current());

 private:
  /// An object that is received when all messages have succeeded.
  struct received_object {
    std::size_t message;
    std::function<void(const engines::transfer&)> take;
  };
  class listener;
  class state;
  using message_list = std::vector<std::shared_ptr<engines::transfer>>;
  using object_list = std::vector<received_object>;

  message_batch& add(std::shared_ptr<engines::transfer> message);
  /// Adds, instead of a message, the text of the exception that is being handled.
  message_batch& add_failure(const engines::transfer& message);

  /// Makes the messages anew where they have run before. Throws usage_error where that is impossible.
  void prepare(call_site where);
  [[nodiscard]] static std::shared_ptr<engines::transfer> renewed(const engines::transfer& message);
  /// Sends the peers, instead of messages, the reason why there are none.
  void refuse(const char* text) noexcept;
  /// Begins another batch in the place of one that has run.
  void renew() noexcept;
  /// Ends a batch whose messages have ended, with the first `error` of one; null: none. Throws it, or that of an
  /// object.
  static void receive(const message_list& messages, const object_list& objects, std::exception_ptr problem,
                      std::exception_ptr error);

  process_group group_;
  message_list messages_;
  object_list objects_;
  std::exception_ptr problem_;                 // of the first object that could not be encoded
  bool has_run_ = false;                       // these messages have
  std::weak_ptr<detail::work_state> started_;  // the work of the last `start`
};

}  // namespace hfcomm
