// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/group/work.hpp>
#include <hfcomm/group/work_coroutine.hpp>

namespace hfcomm::torch_backend_detail {

/// An operation under way as c10d sees it. It is done when the results are in the tensors; its future is completed on
/// the thread that did the operation. Dropping it lets go of the operation, which continues.
///
/// Thread-safety: any number of threads.
class backend_work final : public ::c10d::Work {
 public:
  /// `title` names the operation in PyTorch's profiler, and must outlive the program.
  backend_work(int rank, ::c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
               std::vector<at::Tensor> outputs)
      : Work(rank, type, title, inputs), outputs_(std::move(outputs)) {}
  backend_work(const backend_work&) = delete;
  backend_work& operator=(const backend_work&) = delete;
  ~backend_work() override {
    if (operation_) {
      operation_->detach();
    }
  }

  /// Returns whether it is done, and its future completed.
  bool isCompleted() override { return future_->completed(); }

  /// Waits until it is done. Throws its error, and std::runtime_error after `timeout`; the operation continues then.
  /// Returns false where it was aborted.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override {
    const bool has_deadline = timeout > std::chrono::milliseconds::zero();
    help_until(has_deadline ? std::optional(std::chrono::steady_clock::now() + timeout) : std::nullopt);
    if (has_deadline && !Work::isCompleted()) {
      throw std::runtime_error(
          detail::concat({"hfcomm: Timed out waiting ", timeout.count(), " ms for the operation to complete"}));
    }
    try {
      future_->wait();  // it is completed a moment later than the work
      return Work::wait(kNoTimeout);
    } catch (const cancelled_error&) {
      return false;
    }
  }

  /// Withdraws a receive that no message has matched; every other operation goes on.
  void abort() override {
    if (operation_ && !isCompleted()) {
      (void)operation_->cancel();
    }
  }

  /// Waits until it has ended, and what was called for its future, too. Not where this very thread calls that.
  void await_callbacks() noexcept {
    const std::lock_guard first(waiting_);
    try {
      operation_->wait();
    } catch (...) {
      return;
    }
  }

  [[nodiscard]] int sourceRank() const override { return source_; }
  [[nodiscard]] std::vector<at::Tensor> result() override { return outputs_; }
  [[nodiscard]] c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

  void set_source(int rank) noexcept { source_ = rank; }
  /// To be called once, before anybody else has this object.
  void set_operation(hfcomm::work<void> operation) { operation_.emplace(std::move(operation)); }

  /// Ends it, with an error unless `problem` is null. A callback of the future that throws gets a warning: no caller
  /// waits for it.
  void complete(const std::exception_ptr& problem) {
    finish(problem);
    try {
      if (problem) {
        future_->setError(problem);
      } else {
        future_->markCompleted(c10::IValue(outputs_));
      }
    } catch (...) {
      TORCH_WARN("hfcomm: a callback of a work's future threw: ", hfcomm::detail::current_exception_text());
    }
  }

 private:
  /// Does what this thread can do of the operation. One thread does; the others only wait.
  void help_until(std::optional<std::chrono::steady_clock::time_point> deadline) {
    if (isCompleted()) {
      return;
    }
    const std::unique_lock first(waiting_, std::try_to_lock);
    if (first && deadline) {
      (void)operation_->wait(*deadline);
    } else if (first) {
      operation_->wait();
    } else if (deadline) {
      std::unique_lock lock(mutex_);
      cv_.wait_until(lock, *deadline, [this] { return completed_; });
    }
  }

  std::vector<at::Tensor> outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_ =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  std::atomic<int> source_ = -1;
  std::mutex waiting_;
  std::optional<hfcomm::work<void>> operation_;
};

/// Returns the current exception; a deadline's as one with the words that users of torch.distributed look for.
inline std::exception_ptr problem_for_torch() {
  try {
    throw;
  } catch (const timeout_error& problem) {
    return std::make_exception_ptr(std::runtime_error(detail::concat({"hfcomm: Timed out waiting: ", problem.what()})));
  } catch (...) {
    return std::current_exception();
  }
}

/// Waits for `operation`, calls `after(*done, value...)`, and completes `done`.
template <class T, class After>
hfcomm::work<void> complete_after(hfcomm::work<T> operation, c10::intrusive_ptr<backend_work> done, After after) {
  std::exception_ptr problem;
  try {
    if constexpr (std::is_void_v<T>) {
      co_await operation;
      after(*done);
    } else {
      after(*done, co_await operation);
    }
  } catch (...) {
    problem = problem_for_torch();
  }
  done->complete(problem);
}

}  // namespace hfcomm::torch_backend_detail
