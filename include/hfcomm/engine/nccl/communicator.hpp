// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <hfcomm/core/nccl_options.hpp>
#include <hfcomm/cuda/nccl_api.hpp>
#include <hfcomm/cuda/runtime_api.hpp>
#include <hfcomm/cuda/teardown.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/engine/group_health.hpp>
#include <hfcomm/engine/nccl/agreement.hpp>
#include <hfcomm/engine/nccl/batch.hpp>
#include <hfcomm/engine/nccl/nccl_translation.hpp>
#include <hfcomm/engine/nccl/registered_memory.hpp>
#include <hfcomm/machine/bounded_call.hpp>
#include <hfcomm/machine/waiting.hpp>

namespace hfcomm::engines {

/// A group's NCCL communicator on one device. nccl_communicator_setup makes it.
///
/// There are two communicators behind it. NCCL has a deadline only for what it does on a non-blocking communicator, but
/// starts a thread for every call on such a one. So the ranks connect in a non-blocking one, which can be polled and
/// aborted while it is being made. A blocking one of the same ranks is split off it, in which operations cost what they
/// cost in NCCL. The first one stays, for subgroups to be split from.
class nccl_communicator {
 public:
  nccl_communicator(const nccl_communicator&) = delete;
  nccl_communicator& operator=(const nccl_communicator&) = delete;
  ~nccl_communicator() = default;

  /// Returns the communicator for operations; null once it is aborted.
  [[nodiscard]] ncclComm_t get() const noexcept { return blocking_; }
  [[nodiscard]] int device() const noexcept { return device_; }
  /// Returns device memory of one element, for operations whose data does not matter.
  [[nodiscard]] void* dummy_element() const noexcept { return dummy_element_; }

  /// Returns memory that is registered with this communicator. Collective over `host`; all ranks give the same `bytes`.
  /// A rank with a `problem` makes all ranks throw it.
  ///
  /// Where the registration fails on one rank, in which the ranks wait for each other, all ranks call `give_up()`,
  /// which aborts the communicator.
  template <class GiveUp>
  std::shared_ptr<std::byte> allocate(host_engine& host, const operation& call, std::size_t bytes,
                                      const std::string& problem, GiveUp&& give_up) {
    const nccl_agreement ranks(host, call, "the memory could not be had");
    std::shared_ptr<registered_memory> memory;
    ranks.run_on_all([] {},
                     [&] {
                       if (!problem.empty()) {
                         detail::throw_error<engine_error>(ranks.context(), {problem});
                       }
                       const cuda::device_guard on_device(cuda_, device_);
                       memory = std::make_shared<registered_memory>(cuda_, &nccl_, device_, bytes, call.where);
                     });
    if (bytes == 0) {
      return nullptr;
    }
    const auto registration = add_registration();
    memory->set_registration(registration);
    ranks.run_on_all([&] { give_up(); },
                     [&] { register_memory(host, call, ranks.context(), registration, memory, bytes); });
    return registered_memory::bytes_of(std::move(memory));
  }

  /// Frees the work that waits on the device for other ranks. Bounded in time. Does nothing the second time.
  ///
  /// `state` is the state of the thread that operates; the communicator is not taken from under it. A thread with
  /// deferred calls notices the abort and discards them. A thread in a call has some time to return, because it may
  /// wait for this very abort.
  void abort(shared_thread_state state = nullptr) noexcept {
    tear_down_with("aborting an NCCL communicator", &nccl_registration::abort,
                   [state = std::move(state), grace = default_nccl_options().teardown_timeout / 2](
                       const cuda::nccl_api& nccl, ncclComm_t comm) {
                     const auto end = std::chrono::steady_clock::now() + grace;
                     for (auto now = thread_state::outside; state && (now = state->load()) != thread_state::outside;) {
                       if (now == thread_state::calling && std::chrono::steady_clock::now() >= end) {
                         break;
                       }
                       std::this_thread::sleep_for(std::chrono::milliseconds(1));
                     }
                     (void)nccl.ncclCommAbort(comm);
                   });
  }
  /// Aborts a communicator that is still being made.
  void abort_unfinished() noexcept {
    auto expected = thread_state::outside;
    const bool is_calling =
        warm_up_state_ && !warm_up_state_->compare_exchange_strong(expected, thread_state::cancelled);
    abort(is_calling ? warm_up_state_ : nullptr);
  }
  /// Destroys the communicator after the operations on it have ended. Bounded in time.
  void destroy() noexcept {
    tear_down_with("destroying an NCCL communicator", &nccl_registration::end,
                   [](const cuda::nccl_api& nccl, ncclComm_t comm) { (void)nccl.ncclCommDestroy(comm); });
  }

  /// Polls a non-blocking communicator until its call is done, and returns the call's result. `what` names the call.
  /// Calls `check()` every few milliseconds, which may throw. Throws timeout_error.
  template <class Check>
  ncclResult_t wait_while_in_progress(ncclComm_t comm, std::chrono::nanoseconds timeout, const error_context& context,
                                      std::string_view what, Check&& check) const {
    const auto start = std::chrono::steady_clock::now();
    ncclResult_t state = ncclInternalError;
    const auto is_done = [&] {
      if (const auto asked = nccl_.ncclCommGetAsyncError(comm, &state); asked != ncclSuccess) {
        state = asked;
      }
      const bool is_over =
          timeout > std::chrono::nanoseconds::zero() && std::chrono::steady_clock::now() - start >= timeout;
      if (state == ncclInProgress && is_over) {
        detail::throw_error<timeout_error>(
            context, {what, " has not ended within ", format_duration(timeout), " (timed out)"}, std::vector<int>{});
      }
      return state != ncclInProgress;
    };
    detail::poll_until(is_done, check);
    return state;
  }

 private:
  friend class nccl_communicator_setup;

  nccl_communicator(const cuda::runtime_api& cuda, const cuda::nccl_api& nccl, int device)
      : cuda_(cuda), nccl_(nccl), device_(device) {}

  [[nodiscard]] std::shared_ptr<nccl_registration> add_registration() {
    auto added = std::make_shared<nccl_registration>(nccl_, blocking_.load());
    const std::scoped_lock lock(mutex_);
    std::erase_if(registrations_, [](const auto& one) { return one->has_ended(); });
    registrations_.push_back(added);
    return added;
  }

  void register_memory(host_engine& host, const operation& call, const error_context& context,
                       const std::shared_ptr<nccl_registration>& registration,
                       const std::shared_ptr<registered_memory>& memory, std::size_t bytes) const {
    // On a thread of its own, because a call that waits for a lost rank returns only once the communicator is aborted.
    const auto result = std::make_shared<std::atomic<ncclResult_t>>(ncclInternalError);
    const bool has_ended = run_watched(
        call.timeout,
        [&cuda = cuda_, device = device_, registration, memory, bytes, result] {
          const cuda::thread_on_device on_device(cuda, device);
          result->store(registration->begin(memory->data(), bytes));
        },
        [&] { host.health().check_device_operation(context, 0); });
    if (!has_ended) {
      detail::throw_error<timeout_error>(
          context, {"ncclCommWindowRegister has not ended within ", format_duration(call.timeout), " (timed out)"},
          std::vector<int>{});
    }
    if (result->load() != ncclSuccess) {
      detail::throw_error<engine_error>(context, {"registering it: ", nccl_text(nccl_, result->load())});
    }
  }

  std::shared_ptr<ncclComm_t> exchange_split_result(std::shared_ptr<ncclComm_t> value) noexcept {
    const std::scoped_lock lock(mutex_);  // a device_watch may abort this meanwhile
    return std::exchange(split_result_, std::move(value));
  }

  /// Aborts the communicator that a failed split has left. To be called after its parent is aborted, which points to
  /// it.
  static void abort_split_result(const cuda::nccl_api& nccl, const std::shared_ptr<ncclComm_t>& result) noexcept {
    if (result && *result != nullptr) {
      (void)nccl.ncclCommAbort(*result);
    }
  }

  /// Ends both communicators by `end`, and the registrations by `end_registration`.
  template <class End>
  void tear_down_with(const char* what, void (nccl_registration::*end_registration)() noexcept,
                      const End& end) noexcept {
    const ncclComm_t blocking = blocking_.exchange(nullptr);
    const ncclComm_t nonblocking = nonblocking_.exchange(nullptr);
    void* const dummy_element = dummy_element_.exchange(nullptr);
    if (blocking == nullptr && nonblocking == nullptr) {
      return;
    }
    std::vector<std::shared_ptr<nccl_registration>> registrations;
    {
      const std::scoped_lock lock(mutex_);
      registrations.swap(registrations_);
    }
    tear_down(cuda_, device_, what,
              [&cuda = cuda_, &nccl = nccl_, blocking, nonblocking, dummy_element, end, end_registration,
               split_failed = split_failed_.load(), split_result = exchange_split_result(nullptr),
               registrations = std::move(registrations)] {
                if (end_registration == &nccl_registration::end && !registrations.empty()) {
                  (void)cuda.cudaDeviceSynchronize();  // deregistering unmaps memory that operations may still use
                }
                for (const auto& one : registrations) {
                  std::invoke(end_registration, *one);
                }
                if (blocking != nullptr) {
                  end(nccl, blocking);
                }
                if (nonblocking != nullptr) {
                  split_failed ? void(nccl.ncclCommAbort(nonblocking)) : end(nccl, nonblocking);
                }
                abort_split_result(nccl, split_result);
                (void)cuda.cudaFree(dummy_element);
              });
  }

  const cuda::runtime_api& cuda_;
  const cuda::nccl_api& nccl_;
  int device_;
  std::atomic<ncclComm_t> nonblocking_{nullptr};  // splits are made from it
  std::atomic<ncclComm_t> blocking_{nullptr};     // operations use it
  std::atomic<void*> dummy_element_{nullptr};
  std::shared_ptr<ncclComm_t> split_result_;  // of a split that runs, or was given up
  shared_thread_state warm_up_state_;         // of the thread of the first operation
  std::mutex mutex_;
  std::vector<std::shared_ptr<nccl_registration>> registrations_;
  /// A split of `nonblocking_` was given up. It may still run there, and only an abort ends it.
  std::atomic<bool> split_failed_{false};
};

}  // namespace hfcomm::engines
