// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/collectives/detail/message.hpp>
#include <hfcomm/collectives/detail/message_place.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/engine/host_engine.hpp>
#include <hfcomm/engine/transfer.hpp>
#include <hfcomm/group/detail/group_state.hpp>
#include <hfcomm/group/detail/identity.hpp>
#include <hfcomm/group/detail/running_call.hpp>
#include <hfcomm/group/detail/work-inl.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE void fail_message(const process_group& group, const operation& call, const std::string& text) {
  throw_error<usage_error>({group.rank(), group.size(), engines::call_name(call), 0, call.where}, {text});
}

HFCOMM_INLINE void throw_two_tags(const process_group& group, call_site where) {
  throw_error<usage_error>({group.rank(), group.size(), "a message", 0, where}, {"it has two tags: name one"});
}

HFCOMM_INLINE operation addressed(operation call, const process_group& group, movement pattern, int other,
                                  allowed_peer allowed, message_tag tag) {
  call.pattern = pattern;
  call.root = other;
  call.tag = tag.is_any() ? engines::any_message_tag : static_cast<std::uint64_t>(tag.number());
  call.timeout = group.timeout();
  const bool inside = (other >= 0 && other < group.size()) || other == null_rank;
  require_message(inside || allowed == allowed_peer::unknown, group, call, [&] {
    return concat({engines::no_such_rank(pattern == movement::send ? "destination" : "source", other, group.size()),
                   other == any_source_rank && pattern == movement::receive ? "; any rank is any_source" : ""});
  });
  require_message(tag.number() >= 0, group, call, [&] { return concat({"tag ", tag.number(), " is negative"}); });
  require_message(allowed != allowed_peer::other_rank || other != group.rank(), group, call, [] {
    return "a blocking message to or from oneself never ends; use send_receive, or isend and irecv";
  });
  return call;
}

HFCOMM_INLINE std::shared_ptr<transfer> unsent_message(const operation& call) {
  auto result = std::make_shared<transfer>(call);
  if (call.root == null_rank) {
    result->source = null_rank;
    result->finished.store(true);
  }
  return result;
}

HFCOMM_INLINE std::shared_ptr<transfer> message(operation call, const process_group& group, movement pattern, int other,
                                                allowed_peer allowed, message_tag tag) {
  return unsent_message(addressed(call, group, pattern, other, allowed, tag));
}

HFCOMM_INLINE void require_other_rank(const process_group& group, const operation& call) {
  require_message(call.root != any_source_rank || group.size() > 1, group, call,
                  [] { return "there is no other rank to send anything"; });
}

HFCOMM_INLINE message_info info_of(const transfer& message) noexcept {
  return {message.source, static_cast<int>(message.tag), static_cast<std::size_t>(message.bytes)};
}

/// A completion for a message that nobody waits for.
class silent_listener final : public transfer_listener {
 public:
  [[nodiscard]] bool on_finish() noexcept override { return false; }
  void continue_caller() override {}
};

/// Returns a transfer of a failure.
HFCOMM_INLINE std::shared_ptr<transfer> failed_message(const operation& call, const std::string& text) {
  auto notice = std::make_shared<transfer>(call);
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  notice->object.assign(bytes, bytes + text.size());
  notice->is_failure = true;
  notice->listener = std::make_shared<silent_listener>();
  return notice;
}

HFCOMM_INLINE std::shared_ptr<transfer> failed_message_to_send(const operation& call, const std::string& text) {
  auto notice = failed_message(call, text);
  notice->data = notice->object;
  notice->call.bytes = text.size();
  return notice;
}

HFCOMM_INLINE void send_failure(const process_group& group, const operation& call, const std::string& text) {
  if (call.root == null_rank) {
    return;
  }
  const auto notice = failed_message_to_send(call, text);
  group_access::engine(group).post({&notice, 1});
}

HFCOMM_INLINE void refuse_message(const process_group& group, const operation& call, const std::string& text) {
  if (call.root >= 0 && call.root < group.size()) {
    const auto notice = failed_message(call, text);
    group_access::engine(group).post({&notice, 1});
  }
}

HFCOMM_INLINE std::string encoding_failure_text(const operation& call) {
  return concat({"serializing its ", call.type_name, " threw: ", current_exception_text()});
}

HFCOMM_INLINE void fail_to_encode(const process_group& group, const operation& call) {
  send_failure(group, call, encoding_failure_text(call));
  rethrow_with({group.rank(), group.size(), engines::call_name(call), 0, call.where});
}

HFCOMM_INLINE void fail_message_memory(const process_group& group, const operation& call, const std::string& problem) {
  if (call.pattern == movement::send) {
    send_failure(group, call, problem);
  }
  fail_message(group, call, problem);
}

HFCOMM_INLINE void require_message_memory(const process_group& group, const operation& call,
                                          const const_elements& range) {
  if (!is_there(range)) [[unlikely]] {
    fail_message_memory(group, call, memory_problem(range));
  }
}

HFCOMM_INLINE void fail_to_decode(const process_group& group, const transfer& message, const decode_error& problem) {
  throw_error<decode_error>({group.rank(), group.size(), engines::call_name(message.call), 0, message.call.where},
                            {"the object from rank ", message.source, ": ", problem.detail()});
}

HFCOMM_INLINE void complete_messages(const process_group& group, std::span<const std::shared_ptr<transfer>> messages) {
  const group_guard entered(group, messages.front()->call);
  auto& engine = group_access::engine(group);
  const auto is_finished = [](const auto& one) { return one->finished.load(std::memory_order_relaxed); };
  const auto is_special = [&](const auto& one) { return is_finished(one) || one->is_failure; };
  if (std::any_of(messages.begin(), messages.end(), is_special)) [[unlikely]] {
    std::vector<std::shared_ptr<transfer>> open;
    std::remove_copy_if(messages.begin(), messages.end(), std::back_inserter(open), is_finished);
    if (!open.empty()) {
      engine.post(open);
    }
    std::erase_if(open, [](const auto& one) { return one->is_failure; });
    if (!open.empty()) {
      engine.complete(open);
    }
  } else {
    engine.post(messages);
    engine.complete(messages);
  }
  std::exception_ptr first;
  for (const auto& one : messages) {
    if (one->is_failure) {
      continue;
    }
    // Moved: this thread is the last to hold it, not another one that has moved the message on.
    auto problem = std::exchange(one->problem, nullptr);
    first = first ? std::move(first) : std::move(problem);
  }
  if (first) {
    std::rethrow_exception(std::move(first));
  }
}

HFCOMM_INLINE void complete_message(const process_group& group, const std::shared_ptr<transfer>& message) {
  require_other_rank(group, message->call);
  complete_messages(group, {&message, 1});
}

/// The state of a started message. Waiting for it progresses it.
class message_state final : public group_work_state {
 public:
  message_state(const process_group& group, const std::shared_ptr<transfer>& message)
      : group_work_state(message->call, group), engine_(group_access::engine(group)), message_(message) {}

  void begin_wait() override {
    if (const auto still = message_.lock()) {
      still->awaited.store(true);
    }
  }

  void help(bool may_wait) override {
    const auto keep = group_unless_done();  // the work's owner may drop it meanwhile
    if (const auto still = message_.lock(); still && keep) {
      engine_.complete({&still, may_wait ? 1U : 0U});
    }
  }

 protected:
  [[nodiscard]] bool withdraw() override {
    const auto still = message_.lock();
    return still && engine_.withdraw(*still);
  }

 private:
  host_engine& engine_;
  std::weak_ptr<transfer> message_;
};

/// Ends a message's work when its transfer is finished, as the rank that started it.
class message_listener final : public transfer_listener {
 public:
  message_listener(std::shared_ptr<work_state> state, std::shared_ptr<started_call> result, transfer& message)
      : state_(std::move(state)), result_(std::move(result)), message_(message) {}

  [[nodiscard]] bool on_finish() noexcept override {
    const identity_scope own_rank(own_);
    // Moved, not shared: the thread that asks for the problem is the last to hold it.
    std::exception_ptr problem = std::exchange(message_.problem, nullptr);
    if (!problem) {
      try {
        result_->run();
      } catch (...) {
        problem = std::current_exception();
      }
    }
    result_.reset();
    const auto state = std::exchange(state_, nullptr);
    waiter_ = state->finish(std::move(problem));
    return static_cast<bool>(waiter_);
  }

  void continue_caller() override {
    const identity_scope own_rank(own_);
    waiter_.resume();
  }

 private:
  std::shared_ptr<work_state> state_;
  std::shared_ptr<started_call> result_;
  transfer& message_;  // owns this
  identity* own_ = thread_identity();
  std::coroutine_handle<> waiter_;
};

HFCOMM_INLINE std::shared_ptr<work_state> start_message(const process_group& group,
                                                        const std::shared_ptr<transfer>& message,
                                                        std::shared_ptr<started_call> result) {
  const group_guard entered(group, message->call);
  std::shared_ptr<work_state> state = std::make_shared<message_state>(group, message);
  message->listener = std::make_shared<message_listener>(state, std::move(result), *message);
  if (message->finished.load()) {
    (void)std::exchange(message->listener, nullptr)->on_finish();  // nobody can await the work yet
  } else {
    group_access::engine(group).post({&message, 1});
  }
  return state;
}

}  // namespace hfcomm::detail
