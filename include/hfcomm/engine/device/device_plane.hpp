// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/cuda/runtime_api.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/engine/device/device_resources.hpp>
#include <hfcomm/engine/device/pointer_cache.hpp>
#include <hfcomm/engine/device_engine.hpp>
#include <hfcomm/engine/group_health.hpp>
#include <hfcomm/machine/bounded_call.hpp>
#include <hfcomm/machine/fork_guard.hpp>
#include <hfcomm/machine/waiting.hpp>

namespace hfcomm::engines {

/// The part that all device engines share: sequence numbers, devices, streams, events, and waiting on the host.
class device_plane : public device_engine {
 public:
  device_plane(std::shared_ptr<host_engine> host, const cuda::runtime_api& api)
      : api_(api), host_(std::move(host)), board_(host_->health().board_of(host_->rank())) {
    process_end::watch();
  }

  ~device_plane() override {
    if (creator_.in_creating_process() && !process_end::begun()) {
      for (const auto& resources : resources_) {
        if (resources) {
          resources->destroy();
        }
      }
    }
  }

  [[nodiscard]] std::uint64_t sequence() const noexcept override { return sequence_.load(std::memory_order_relaxed); }

  std::uint64_t begin(const operation& call) override {
    if (!creator_.in_creating_process()) [[unlikely]] {
      detail::throw_error<usage_error>(context(call, 0),
                                       {"this group was made before a fork; CUDA does not work in the child process"});
    }
    if (is_broken_.load(std::memory_order_acquire) || host_->health().is_broken()) [[unlikely]] {
      throw_broken(call);
    }
    if (call.pattern == movement::send || call.pattern == movement::receive) {
      current_number_ = 0;
      return 0;
    }
    const std::uint64_t number = sequence_.load(std::memory_order_relaxed) + 1;
    sequence_.store(number, std::memory_order_relaxed);
    current_number_ = number;
    if (board_ != nullptr) {
      board_->begun.store(number, std::memory_order_release);
    }
    return number;
  }

  void announce_failure(std::uint64_t number, std::string_view why) noexcept override {
    if (board_ != nullptr && number != 0) {
      board_->record_refusal(number, why);
    }
  }

  stream_ref own_stream_after(const operation& call, device_memory memory, stream_ref stream) override {
    device_resources& resources = resources_for(call, memory);
    const stream_ref own = resources.stream(call.where);
    const event_handle event = resources.take_event(call.where);
    // A waiting stream keeps the event's present state, so the event may be used again at once.
    const cudaError_t recorded = api_.cudaEventRecord(event, stream.get());
    const cudaError_t waits = recorded == cudaSuccess ? api_.cudaStreamWaitEvent(own.get(), event, 0) : recorded;
    resources.give_back(event);
    api_.check(waits, recorded == cudaSuccess ? "cudaStreamWaitEvent" : "cudaEventRecord", call.where);
    return own;
  }

  event_handle record_event(const operation& call, device_memory memory, stream_ref stream) override {
    device_resources& resources = resources_for(call, memory);
    const event_handle event = resources.take_event(call.where);
    const cudaError_t recorded = api_.cudaEventRecord(event, stream.get());
    if (recorded != cudaSuccess) {
      resources.give_back(event);
    }
    api_.check(recorded, "cudaEventRecord", call.where);
    return event;
  }

  void release_event(event_handle event) noexcept override {
    if (creator_.in_creating_process() && !process_end::begun()) {
      const std::scoped_lock lock(resources_mutex_);
      (void)std::any_of(resources_.begin(), resources_.end(),
                        [&](const auto& resources) { return resources && resources->give_back(event); });
    }
  }

  void wait_for_event(const operation& call, event_handle event, stream_ref stream) override {
    api_.check(api_.cudaStreamWaitEvent(stream.get(), event, 0), "cudaStreamWaitEvent", call.where);
  }

  void copy(const operation& call, const void* in, void* out, std::size_t bytes, stream_ref stream) override {
    (void)device_of(call, {in, bytes}, {out, bytes});
    if (bytes != 0 && in != out) {
      api_.check(api_.cudaMemcpyAsync(out, in, bytes, cudaMemcpyDeviceToDevice, stream.get()), "cudaMemcpyAsync",
                 call.where);
    }
  }
  void clear(const operation& call, void* out, std::size_t bytes, stream_ref stream) override {
    if (bytes != 0) {
      api_.check(api_.cudaMemsetAsync(out, 0, bytes, stream.get()), "cudaMemsetAsync", call.where);
    }
  }

  bool is_capturing(const operation& call, stream_ref stream) override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    api_.check(api_.cudaStreamIsCapturing(stream.get(), &status), "cudaStreamIsCapturing", call.where);
    return status != cudaStreamCaptureStatusNone;
  }

  bool is_reached(const operation& call, target what) override {
    const cuda::relaxed_capture relaxed(api_);
    return what.event != nullptr
               ? api_.is_ready(api_.cudaEventQuery(what.event), "cudaEventQuery", call.where)
               : api_.is_ready(api_.cudaStreamQuery(what.stream.get()), "cudaStreamQuery", call.where);
  }

  bool wait_for(const operation& call, std::uint64_t number, target what, std::chrono::nanoseconds limit) override {
    using clock = std::chrono::steady_clock;
    constexpr auto no_limit = std::chrono::nanoseconds::zero();
    const auto start = clock::now();
    detail::running_time waiting;
    bool reached = false;
    const auto is_done = [&] {
      if (is_broken_.load(std::memory_order_acquire)) {
        throw_broken(call);
      }
      // An aborted operation reaches its end, but has no result.
      reached = is_reached(call, what) && !is_broken_.load(std::memory_order_acquire);
      if (!reached && call.timeout > no_limit && waiting.update() >= call.timeout) {
        break_for_timeout(call, number);
      }
      return reached || (limit > no_limit && clock::now() - start >= limit);
    };
    detail::poll_until(is_done, [&] { check_operation(call, number); });
    return reached;
  }

  [[noreturn]] void break_for_timeout(const operation& call, std::uint64_t number) override {
    std::vector<int> missing;
    for (int rank = 0; number != 0 && rank < host_->size(); ++rank) {
      if (const auto* theirs = host_->health().board_of(rank); theirs != nullptr && theirs->begun.load() < number) {
        missing.push_back(rank);
      }
    }
    // The other ranks throw the same text.
    std::string why = detail::concat({"the work that rank ", host_->rank(), " put on its device has not ended within ",
                                      format_duration(call.timeout), " (timed out)"});
    why += missing.empty() ? "."
                           : detail::concat({"; it is device operation #", number, ", which ", list_ranks(missing),
                                             missing.size() == 1 ? " has" : " have", " not begun."});
    set_failure(why);
    host_->health().break_for_timeout(context(call, number), why, missing);
    abort();
    host_->health().check_device_operation(context(call, number), 0);
    detail::throw_error<timeout_error>(context(call, number), {why}, missing);
  }

  [[nodiscard]] int current_device() const override {
    int device = 0;
    api_.check(api_.cudaGetDevice(&device), "cudaGetDevice", call_site::current());
    return device;
  }
  void use_device(int device) const noexcept override { (void)api_.cudaSetDevice(device); }

 protected:
  [[nodiscard]] error_context context(const operation& call, std::uint64_t number) const {
    return {host_->rank(), host_->size(), call_name(call), number, call.where};
  }

  /// Returns the device that memory is on, or the current one for no memory. Throws usage_error for other memory.
  int device_of(const operation& call, device_memory memory) {
    if (const int device = pointers_.find(memory); device >= 0 && memory.bytes != 0) [[likely]] {
      return device;
    }
    return query_device(call, memory);
  }

  /// Returns the device that both buffers are on. Throws usage_error where they are on two.
  int device_of(const operation& call, device_memory in, device_memory out) {
    const int device = device_of(call, out.bytes != 0 ? out : in);
    if (in.bytes != 0 && in.data != out.data) {
      if (const int other = device_of(call, in); other != device) [[unlikely]] {
        refuse(call, detail::concat({"the input is on device ", other, ", the output on device ", device}));
      }
    }
    return device;
  }

  /// Returns the number of the operation that was begun last; 0 for a message.
  [[nodiscard]] std::uint64_t current_number() const noexcept { return current_number_; }

  /// Refuses this rank's part of the operation, because of an argument, and throws usage_error.
  [[noreturn]] void refuse(const operation& call, const std::string& why) {
    announce_failure(current_number_, why);
    detail::throw_error<usage_error>(context(call, current_number_), {why});
  }

  /// Frees the device and throws the error that has broken the group.
  [[noreturn]] void throw_broken(const operation& call) {
    abort();
    const auto here = context(call, sequence());
    host_->health().check_device_operation(here, 0);
    const std::scoped_lock lock(failure_mutex_);
    detail::throw_error<engine_error>(
        here, {failure_.empty() ? "the device operations of this group were aborted" : failure_});
  }

  /// Breaks the group with this rank as the culprit, and frees the device.
  void break_group(const operation& call, std::uint64_t number, const std::string& why) {
    set_failure(why);
    host_->health().break_by_this_rank(context(call, number), why);
    abort();
  }
  /// Sets the text that `throw_broken` throws. The first text stays.
  void set_failure(const std::string& why) {
    const std::scoped_lock lock(failure_mutex_);
    failure_ = failure_.empty() ? why : failure_;
  }

  const cuda::runtime_api& api_;        // NOLINT(*non-private-member*)
  std::shared_ptr<host_engine> host_;   // NOLINT(*non-private-member*)
  std::atomic<bool> is_broken_{false};  // NOLINT(*non-private-member*): set before anything is aborted
  rendezvous::fork_guard creator_;      // NOLINT(*non-private-member*)

 private:
  int query_device(const operation& call, device_memory memory) {
    if (memory.bytes == 0) {
      return current_device();
    }
    std::string problem;
    const int device = pointers_.query(api_, memory, problem);
    if (device < 0) {
      refuse(call, problem);
    }
    return device;
  }

  device_resources& resources_for(const operation& call, device_memory memory) {
    const auto device = static_cast<std::size_t>(device_of(call, memory));
    const std::scoped_lock lock(resources_mutex_);
    if (resources_.size() <= device) {
      resources_.resize(device + 1);
    }
    if (!resources_[device]) {
      resources_[device] = std::make_unique<device_resources>(api_, static_cast<int>(device));
    }
    return *resources_[device];
  }

  device_board* board_;
  std::atomic<std::uint64_t> sequence_{0};
  std::uint64_t current_number_ = 0;
  pointer_cache pointers_;
  std::mutex resources_mutex_;
  std::vector<std::unique_ptr<device_resources>> resources_;  // by device
  std::mutex failure_mutex_;
  std::string failure_;
};

}  // namespace hfcomm::engines
