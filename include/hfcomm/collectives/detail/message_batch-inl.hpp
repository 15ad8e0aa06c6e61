// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <memory>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/collectives/detail/message-inl.hpp>
#include <hfcomm/collectives/message_batch.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/host_engine.hpp>
#include <hfcomm/engine/transfer.hpp>
#include <hfcomm/group/detail/group_state.hpp>
#include <hfcomm/group/detail/identity.hpp>
#include <hfcomm/group/detail/work-inl.hpp>
#include <hfcomm/group/work.hpp>

namespace hfcomm {

/// Ends the work of a batch when the last of its messages has ended.
class message_batch::listener final : public engines::transfer_listener {
 public:
  /// `parts` is the number of calls of `on_finish`.
  listener(const message_batch& batch, std::shared_ptr<detail::work_state> state,
           std::shared_ptr<detail::work_value<void>> value, std::size_t parts)
      : messages_(batch.messages_),
        objects_(batch.objects_),
        problem_(batch.problem_),  // NOLINT(bugprone-throw-keyword-missing): it is thrown when all have ended
        state_(std::move(state)),
        value_(std::move(value)),
        unfinished_parts_(parts) {}

  [[nodiscard]] bool on_finish() noexcept override {
    if (unfinished_parts_.fetch_sub(1) != 1) {
      return false;
    }
    const detail::identity_scope own_rank(own_);
    const message_list messages = std::exchange(messages_, {});  // they own this
    std::exception_ptr error;
    for (const auto& one : messages) {
      if (!one->is_failure) {  // a notice may be under way still
        auto problem = std::exchange(one->problem, nullptr);
        error = error ? std::move(error) : std::move(problem);
      }
    }
    try {
      receive(messages, objects_, std::exchange(problem_, nullptr), std::exchange(error, nullptr));
      value_->value.emplace();
    } catch (...) {
      error = std::current_exception();
    }
    waiter_ = std::exchange(state_, nullptr)->finish(std::move(error));
    return static_cast<bool>(waiter_);
  }

  void continue_caller() override {
    const detail::identity_scope own_rank(own_);
    waiter_.resume();
  }

 private:
  message_list messages_;
  object_list objects_;
  std::exception_ptr problem_;
  std::shared_ptr<detail::work_state> state_;
  std::shared_ptr<detail::work_value<void>> value_;
  std::atomic<std::size_t> unfinished_parts_;
  detail::identity* own_ = detail::thread_identity();
  std::coroutine_handle<> waiter_;
};

HFCOMM_INLINE message_batch::~message_batch() {
  if (!has_run_) {
    refuse("its message_batch was destroyed before it had run");
  }
}

HFCOMM_INLINE message_batch& message_batch::operator=(message_batch&& other) noexcept {
  std::swap(group_, other.group_);
  std::swap(messages_, other.messages_);
  std::swap(objects_, other.objects_);
  std::swap(problem_, other.problem_);
  std::swap(has_run_, other.has_run_);
  std::swap(started_, other.started_);
  return *this;
}

HFCOMM_INLINE void message_batch::refuse(const char* text) noexcept {
  for (const auto& message : messages_) {
    if (message->finished.load()) {
      continue;  // it has failed already, or is to null_rank
    }
    try {
      if (message->is_failure) {
        detail::group_access::engine(group_).post({&message, 1});
      } else if (message->call.pattern == detail::movement::send) {
        detail::send_failure(group_, message->call, text);
      } else {
        detail::refuse_message(group_, message->call, text);
      }
    } catch (...) {
      // The group has a more serious error, which its next operation reports.
    }
  }
}

HFCOMM_INLINE void message_batch::renew() noexcept {
  if (has_run_) {
    messages_.clear();
    objects_.clear();
    problem_ = nullptr;
    has_run_ = false;
  }
}

/// Returns a message like one that has run.
HFCOMM_INLINE std::shared_ptr<engines::transfer> message_batch::renewed(const engines::transfer& message) {
  auto result = detail::unsent_message(message.call);
  result->data = message.data;
  result->into = message.into;
  return result;
}

HFCOMM_INLINE void message_batch::prepare(std::source_location where) {
  const engines::operation call{.name = "message_batch", .where = where};
  if (const auto started = started_.lock(); started && !started->done()) {
    detail::fail_message(group_, call, "it is under way still: wait for the work that start returned");
  }
  if (!has_run_) {
    return;
  }
  const auto is_copy = [](const auto& one) {
    return one->call.pattern == detail::movement::send && one->call.content == engines::payload::object;
  };
  for (auto& one : messages_) {
    one = renewed(*one);
  }
  if (std::any_of(messages_.begin(), messages_.end(), is_copy)) {
    const char* const text =
        "its message_batch has run, and cannot send again the objects that were copied when they were added: add the "
        "messages anew, or send std::spans";
    refuse(text);
    detail::fail_message(group_, call, text);
  }
  has_run_ = false;
}

HFCOMM_INLINE void message_batch::receive(const message_list& messages, const object_list& objects,
                                          std::exception_ptr problem, std::exception_ptr error) {
  for (const received_object& one : objects) {
    try {
      if (!error) {
        one.take(*messages[one.message]);
      }
    } catch (...) {
      problem = problem ? std::move(problem) : std::current_exception();
    }
  }
  for (const auto& one : messages) {
    if (one->finished.load()) {
      one->object = {};  // the batch may stay for long
    }
  }
  problem = problem ? std::move(problem) : std::move(error);
  if (problem) {
    std::rethrow_exception(std::move(problem));
  }
}

HFCOMM_INLINE void message_batch::run(std::source_location where) {
  prepare(where);
  std::exception_ptr error;
  try {
    if (!messages_.empty()) {
      detail::complete_messages(group_, messages_);
    }
  } catch (...) {
    error = std::current_exception();
  }
  // Nothing was posted where the group could not be used: the peers still wait for this batch.
  has_run_ = std::all_of(messages_.begin(), messages_.end(),
                         [](const auto& one) { return one->finished.load() || one->is_failure; });
  receive(messages_, objects_, problem_, std::move(error));
}

/// The state of a batch that was started. Waiting for it progresses all of its messages.
class message_batch::state final : public detail::group_work_state {
 public:
  state(const engines::operation& call, const process_group& group, const message_list& messages)
      : group_work_state(call, group),
        engine_(detail::group_access::engine(group)),
        messages_(messages.begin(), messages.end()) {}

  void begin_wait() override {
    for (const auto& one : unfinished_messages()) {
      one->awaited.store(true);
    }
  }

  void help(bool may_wait) override {
    const auto keep = group_unless_done();  // the work's owner may drop it meanwhile
    if (const message_list unfinished = unfinished_messages(); keep && !unfinished.empty()) {
      engine_.complete(std::span(unfinished).first(may_wait ? unfinished.size() : 0));
    }
  }

 protected:
  [[nodiscard]] bool withdraw() override { return false; }

 private:
  [[nodiscard]] message_list unfinished_messages() const {
    message_list unfinished;
    for (const auto& one : messages_) {
      if (auto message = one.lock(); message && !message->finished.load()) {
        unfinished.push_back(std::move(message));
      }
    }
    return unfinished;
  }

  engines::host_engine& engine_;
  std::vector<std::weak_ptr<engines::transfer>> messages_;
};

HFCOMM_INLINE work<void> message_batch::start(std::source_location where) {
  prepare(where);
  const engines::operation call{.name = "message_batch::start", .where = where};
  const detail::group_guard entered(group_, call);
  message_list unfinished;
  message_list awaited;
  for (const auto& one : messages_) {
    if (!one->finished.load()) {
      unfinished.push_back(one);
      if (!one->is_failure) {
        awaited.push_back(one);
      }
    }
  }
  auto value = std::make_shared<detail::work_value<void>>();
  std::shared_ptr<detail::work_state> started = std::make_shared<state>(call, group_, awaited);
  const auto last_part = std::make_shared<listener>(*this, started, value, awaited.size() + 1);
  for (const auto& one : awaited) {
    one->listener = last_part;
  }
  try {
    if (!unfinished.empty()) {
      detail::group_access::engine(group_).post(unfinished);
    }
  } catch (...) {
    for (const auto& one : awaited) {
      one->listener.reset();  // it owns the messages
    }
    throw;
  }
  has_run_ = true;
  started_ = started;
  (void)last_part->on_finish();  // nobody can await the work yet
  return work<void>(std::move(started), std::move(value));
}

HFCOMM_INLINE message_batch& message_batch::add_failure(const engines::transfer& message) {
  renew();
  const std::string text = detail::encoding_failure_text(message.call);
  try {
    detail::rethrow_with({group_.rank(), group_.size(), engines::call_name(message.call), 0, message.call.where});
  } catch (...) {
    problem_ = problem_ ? problem_ : std::current_exception();
  }
  return message.finished.load() ? *this : add(detail::failed_message_to_send(message.call, text));
}

HFCOMM_INLINE message_batch& message_batch::add(std::shared_ptr<engines::transfer> message) {
  renew();
  messages_.push_back(std::move(message));
  return *this;
}

}  // namespace hfcomm
