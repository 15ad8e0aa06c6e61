// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/collectives/detail/message.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/engine/host_engine.hpp>
#include <hfcomm/group/detail/running_call.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE void fail_message(const process_group& group, const operation& call, const std::string& text) {
  throw usage_error({group.rank(), group.size(), engines::call_name(call), 0, call.where}, text);
}

HFCOMM_INLINE std::shared_ptr<transfer> message(operation call, const process_group& group, movement pattern, int other,
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

HFCOMM_INLINE void send_failure(const process_group& group, const operation& call, const std::string& text) {
  auto notice = std::make_shared<transfer>(call);
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  notice->object.assign(bytes, bytes + text.size());
  notice->data = notice->object;
  notice->call.bytes = text.size();
  notice->is_failure = true;
  notice->on_finish = [] { return nullptr; };
  post_message(group, notice);
}

HFCOMM_INLINE void send_encoding_failure(const process_group& group, const operation& call) {
  send_failure(group, call, "serializing its " + std::string(call.type_name) + " threw: " + current_exception_text());
}

HFCOMM_INLINE void fail_message_memory(const process_group& group, const operation& call, const std::string& problem) {
  if (call.pattern == movement::send) {
    send_failure(group, call, problem);
  }
  fail_message(group, call, problem);
}

HFCOMM_INLINE void fail_to_decode(const process_group& group, const transfer& message, const decode_error& problem) {
  throw decode_error({group.rank(), group.size(), engines::call_name(message.call), 0, message.call.where},
                     "the object from rank " + std::to_string(message.source) + ": " + problem.detail());
}

HFCOMM_INLINE void pass(const process_group& group, std::span<const std::shared_ptr<transfer>> messages) {
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

HFCOMM_INLINE acting_as::acting_as(identity* who) noexcept : before_(std::exchange(thread_identity(), who)) {}
HFCOMM_INLINE acting_as::~acting_as() { thread_identity() = before_; }

HFCOMM_INLINE std::function<void()> completion_of(const process_group& group,
                                                  const std::shared_ptr<transfer>& message) {
  return [&engine = group_access::engine(group), weak = std::weak_ptr<transfer>(message)] {
    if (const auto still = weak.lock()) {
      engine.complete({&still, 1});
    }
  };
}

HFCOMM_INLINE std::function<void()> continue_as(identity* own, std::function<void()> then) {
  if (!then) {
    return nullptr;
  }
  return [then = std::move(then), own] {
    const acting_as its_rank(own);
    then();
  };
}

HFCOMM_INLINE void post_message(const process_group& group, const std::shared_ptr<transfer>& message) {
  group_access::engine(group).post({&message, 1});
}

}  // namespace hfcomm::detail
