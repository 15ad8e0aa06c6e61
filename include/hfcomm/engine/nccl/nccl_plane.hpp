// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/engine/device/device_plane.hpp>
#include <hfcomm/engine/group_health.hpp>
#include <hfcomm/engine/nccl/batch.hpp>
#include <hfcomm/engine/nccl/communicators.hpp>
#include <hfcomm/engine/nccl/reduction.hpp>

namespace hfcomm::engines {

/// The part of the NCCL engine around an operation: finding the communicator, calling NCCL, batches, and errors. The
/// operations themselves are in class nccl.
class nccl_plane : public device_plane {
 public:
  nccl_plane(std::shared_ptr<host_engine> host, const cuda::runtime_api& cuda, const cuda::nccl_api& api)
      : device_plane(std::move(host), cuda), nccl_(api), exceptions_(std::uncaught_exceptions()) {}

  ~nccl_plane() override {
    if (!creator_.in_creating_process() || process_end::begun()) {
      communicators_.leak();
      return;
    }
    if (nccl_batch::has_calls_of(state_)) {
      nccl_batch::discard(nccl_);
    }
    if (operations_will_end()) {
      communicators_.destroy();
    } else {
      communicators_.abort(nullptr);
    }
  }

  void begin_batch(const operation& call) override { require(call, nccl_batch::begin(nccl_)); }
  void end_batch(const operation& call) override {
    if (is_in_batch()) {
      const ncclResult_t result = nccl_batch::end(nccl_);
      require(call, result == ncclInProgress ? ncclSuccess : result);
    } else if (is_broken_.load()) {
      throw_broken(call);  // `abort` has discarded the batch
    }
  }
  [[nodiscard]] bool is_in_batch() const noexcept override { return nccl_batch::current() != nullptr; }

  void abort() noexcept override {
    is_broken_.store(true);
    if (nccl_batch::has_calls_of(state_)) {
      nccl_batch::discard(nccl_);  // deferred calls point to the communicator
    }
    communicators_.abort(state_);
  }

  void check_operation(const operation& call, std::uint64_t number) override {
    try {
      host_->health().check_device_operation(context(call, number), number);
    } catch (...) {
      abort();
      throw;
    }
    const ncclResult_t state = communicators_.async_error(nccl_);
    if (state != ncclSuccess && state != ncclInProgress) {
      fail(call, state);
    }
  }

 protected:
  /// A scope in which this thread calls NCCL. Another thread does not free the communicator meanwhile, nor while NCCL
  /// has deferred a call of this thread.
  class nccl_call {
   public:
    explicit nccl_call(nccl_plane& engine) noexcept : engine_(engine) {
      if (!nccl_batch::has_calls_of(engine_.state_)) {
        engine_.state_->store(thread_state::calling);
      }
    }
    /// Finds the communicator of the device that the operation's memory is on.
    nccl_call(nccl_plane& engine, const operation& call, device_memory in, device_memory out) : nccl_call(engine) {
      // In this order, because a thread that aborts sets `is_broken_` first, and then reads this thread's state.
      if (engine_.is_broken_.load()) [[unlikely]] {
        engine_.leave_nccl();
        engine_.throw_broken(call);
      }
      communicator_ = &engine_.communicator_for(call, in, out);
      comm_ = communicator_->get();
      if (auto* batch = nccl_batch::current(); batch != nullptr) [[unlikely]] {
        batch->add(engine_.state_);
      }
    }
    nccl_call(const nccl_call&) = delete;
    nccl_call& operator=(const nccl_call&) = delete;
    ~nccl_call() { engine_.leave_nccl(); }

    [[nodiscard]] ncclComm_t comm() const noexcept { return comm_; }
    [[nodiscard]] void* dummy_element() const noexcept { return communicator_->dummy_element(); }
    [[nodiscard]] nccl_communicator& communicator() const noexcept { return *communicator_; }

   private:
    nccl_plane& engine_;
    nccl_communicator* communicator_ = nullptr;
    ncclComm_t comm_ = nullptr;
  };

  /// Ends a call of NCCL. Deferred calls of this thread stay.
  void leave_nccl() noexcept {
    if (!nccl_batch::has_calls_of(state_)) [[likely]] {
      state_->store(thread_state::outside, std::memory_order_release);
    }
  }

  /// Throws where NCCL has no such reduction, or could not make it.
  void require(const nccl_reduction& reduction, const operation& call, nccl_call& scope) {
    if (!reduction.is_supported()) [[unlikely]] {
      refuse(call, nccl_reduction::problem(call));
    }
    if (reduction.result() != ncclSuccess) [[unlikely]] {
      require_success(call, scope, reduction.result());
    }
  }

  /// Takes the result of the NCCL call that is an operation. Throws where it failed.
  void finish_launch(const operation& call, nccl_call& scope, ncclResult_t result) {
    if (result != ncclSuccess) [[unlikely]] {
      require_success(call, scope, result);
    }
    if (auto* batch = nccl_batch::current(); batch != nullptr && batch->is_full_with_one_more()) [[unlikely]] {
      end_batch(call);
      begin_batch(call);
    }
  }

  /// Makes several calls of NCCL as one. `body(add)` gives each call's result to `add`.
  template <class Body>
  void launch_group(const operation& call, nccl_call& scope, Body&& body) {
    require(call, nccl_.ncclGroupStart());
    ncclResult_t worst = ncclSuccess;
    const auto add = [&](ncclResult_t result) {
      worst = worst == ncclSuccess || worst == ncclInProgress ? result : worst;
    };
    body(add);
    add(nccl_.ncclGroupEnd());  // also after a failure, because NCCL counts the groups of a thread
    finish_launch(call, scope, worst);
  }

  const cuda::nccl_api& nccl_;        // NOLINT(*non-private-member*)
  nccl_communicators communicators_;  // NOLINT(*non-private-member*)

 private:
  /// Time that the host plane has to find the lost rank that made NCCL fail.
  static constexpr std::chrono::milliseconds lost_rank_time{300};

  /// Returns false where a rank is lost or this one is being left by an exception, so that operations would wait for
  /// ever.
  [[nodiscard]] bool operations_will_end() const noexcept {
    if (is_broken_.load() || std::uncaught_exceptions() > exceptions_) {
      return false;
    }
    try {
      host_->health().check_device_operation(context({.name = "connect_device"}, 0), sequence());
    } catch (...) {
      return false;
    }
    return true;
  }

  /// Returns the communicator of the device that an operation's memory is on. Without memory it is the only one, or the
  /// current device's.
  nccl_communicator& communicator_for(const operation& call, device_memory in, device_memory out) {
    if (in.bytes == 0 && out.bytes == 0 && communicators_.only() != nullptr) {
      return *communicators_.only();
    }
    const int device = device_of(call, in, out);
    nccl_communicator* const found = communicators_.find(device);
    if (found == nullptr) [[unlikely]] {
      refuse(call, detail::concat({"the buffer is on device ", device, ", for which this group has no communicator (",
                                   communicators_.describe_devices(),
                                   "); make it current and call connect_device on every rank first"}));
    }
    return *found;
  }

  /// Throws unless a call of NCCL has succeeded. It waits for calls in progress, which there are only where
  /// NCCL_COMM_BLOCKING=0 makes NCCL's calls non-blocking.
  void require_success(const operation& call, nccl_call& scope, ncclResult_t result) {
    if (result == ncclInProgress && !is_in_batch()) {
      const auto context = this->context(call, current_number());
      try {
        result = scope.communicator().wait_while_in_progress(
            scope.comm(), call.timeout, context, "NCCL's part of the call",
            [&] { host_->health().check_device_operation(context, sequence()); });
      } catch (const timeout_error&) {
        leave_nccl();
        break_for_timeout(call, sequence());
      } catch (...) {
        leave_nccl();
        abort();
        throw;
      }
    }
    if (result != ncclSuccess && result != ncclInProgress) {
      fail(call, result);
    }
  }

  void require(const operation& call, ncclResult_t result) {
    if (result != ncclSuccess) [[unlikely]] {
      fail(call, result);
    }
  }

  /// Throws the error that NCCL has returned. It breaks the group, unless it is about an argument of this call.
  [[noreturn]] void fail(const operation& call, ncclResult_t result) {
    leave_nccl();
    const std::string text = nccl_text(nccl_, result);
    if (result == ncclInvalidArgument || result == ncclInvalidUsage) {
      refuse(call, text);
    }
    // Most often another rank has died. The host plane knows its number now, or in a moment.
    const auto here = context(call, current_number());
    try {
      for (auto waited = std::chrono::milliseconds(0); waited < lost_rank_time;
           waited += std::chrono::milliseconds(10)) {
        host_->health().check_device_operation(here, 0);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    } catch (...) {
      abort();
      throw;
    }
    break_group(call, current_number(), detail::concat({"got an error of NCCL in ", call_name(call), ": ", text}));
    detail::throw_error<engine_error>(here, {text});
  }

  int exceptions_;  // that were being thrown when the engine was made
  /// State of the thread that operates. A thread that aborts keeps it while it waits.
  shared_thread_state state_ = std::make_shared<std::atomic<thread_state>>(thread_state::outside);
};

}  // namespace hfcomm::engines
