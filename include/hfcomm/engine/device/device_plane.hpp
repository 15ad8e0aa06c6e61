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
#include <thread>
#include <utility>
#include <vector>

#include <hfcomm/cuda/runtime_api.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/engine/device/device_lane.hpp>
#include <hfcomm/engine/device/device_pointers.hpp>
#include <hfcomm/engine/device_engine.hpp>
#include <hfcomm/machine/bounded_call.hpp>
#include <hfcomm/machine/fork_guard.hpp>

namespace hfcomm::engines {

/// What the device engines have in common: numbers, devices, streams and marks, and waiting.
class device_plane : public device_engine {
 public:
  device_plane(std::shared_ptr<host_engine> host, const cuda::runtime_api& api)
      : api_(api), host_(std::move(host)), board_(host_->health().board_of(host_->rank())) {
    process_end::watch();
  }

  ~device_plane() override {
    if (creator_.in_creating_process() && !process_end::begun()) {
      for (const auto& lane : lanes_) {
        if (lane) {
          lane->close();
        }
      }
    }
  }

  [[nodiscard]] std::uint64_t sequence() const noexcept override { return sequence_.load(std::memory_order_relaxed); }

  std::uint64_t begin(const operation& call) override {
    if (!creator_.in_creating_process()) [[unlikely]] {
      throw usage_error(context(call, 0), "this group was made before a fork; CUDA does not work in the child process");
    }
    if (lost_.load(std::memory_order_acquire) || host_->health().is_broken()) [[unlikely]] {
      throw_lost(call);
    }
    if (call.pattern == movement::send || call.pattern == movement::receive) {
      current_ = 0;
      return 0;
    }
    const std::uint64_t number = sequence_.load(std::memory_order_relaxed) + 1;
    sequence_.store(number, std::memory_order_relaxed);
    current_ = number;
    if (board_ != nullptr) {
      board_->begun.store(number, std::memory_order_release);
    }
    return number;
  }

  void refuse(std::uint64_t number, std::string_view why) noexcept override {
    if (board_ != nullptr && number != 0) {
      board_->refuse(number, why);
    }
  }

  stream_ref fork(const operation& call, device_memory memory, stream_ref stream) override {
    device_lane& own = lane_of(call, memory);
    const stream_ref beside = own.stream(call.where);
    const event here = own.take(call.where);
    // Waiting streams keep the mark as it is now, so it may be used again at once.
    const cudaError_t recorded = api_.cudaEventRecord(here, stream.get());
    const cudaError_t waits = recorded == cudaSuccess ? api_.cudaStreamWaitEvent(beside.get(), here, 0) : recorded;
    own.give_back(here);
    api_.check(waits, "putting an operation behind what is on its stream", call.where);
    return beside;
  }

  event mark(const operation& call, device_memory memory, stream_ref stream) override {
    device_lane& own = lane_of(call, memory);
    const event here = own.take(call.where);
    const cudaError_t recorded = api_.cudaEventRecord(here, stream.get());
    if (recorded != cudaSuccess) {
      own.give_back(here);
    }
    api_.check(recorded, "cudaEventRecord", call.where);
    return here;
  }

  void release(event mark) noexcept override {
    if (creator_.in_creating_process() && !process_end::begun()) {
      const std::scoped_lock lock(lanes_mutex_);
      (void)std::any_of(lanes_.begin(), lanes_.end(), [&](const auto& lane) { return lane && lane->give_back(mark); });
    }
  }

  void order(const operation& call, event mark, stream_ref stream) override {
    api_.check(api_.cudaStreamWaitEvent(stream.get(), mark, 0), "cudaStreamWaitEvent", call.where);
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

  bool capturing(const operation& call, stream_ref stream) override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    api_.check(api_.cudaStreamIsCapturing(stream.get(), &status), "cudaStreamIsCapturing", call.where);
    return status != cudaStreamCaptureStatusNone;
  }

  bool done(const operation& call, target what) override {
    const cuda::relaxed_capture apart(api_);
    const cudaError_t status =
        what.mark != nullptr ? api_.cudaEventQuery(what.mark) : api_.cudaStreamQuery(what.stream.get());
    if (status == cudaErrorNotReady) {
      (void)api_.cudaGetLastError();
      return false;
    }
    api_.check(status, "waiting for a device", call.where);
    return true;
  }

  bool await(const operation& call, std::uint64_t number, target what, std::chrono::nanoseconds patience) override {
    using clock = std::chrono::steady_clock;
    const auto start = clock::now();
    auto next_check = start + check_interval;
    auto nap = std::chrono::microseconds(10);
    while (true) {
      if (lost_.load(std::memory_order_acquire)) {
        throw_lost(call);  // what it would read now is nothing: see `abort`
      }
      const bool reached = done(call, what);
      const auto now = clock::now();
      if (reached && !lost_.load(std::memory_order_acquire)) {
        return true;
      }
      if (now - start < spin_time) {
        continue;
      }
      if (now >= next_check) {
        next_check = now + check_interval;
        check(call, number);
      }
      if (patience > std::chrono::nanoseconds::zero() && now - start >= patience) {
        return false;
      }
      if (call.timeout > std::chrono::nanoseconds::zero() && now - start >= call.timeout) {
        expire(call, number);
      }
      std::this_thread::sleep_for(nap);
      nap = std::min<std::chrono::microseconds>(nap * 2, std::chrono::microseconds(200));
    }
  }

  [[noreturn]] void expire(const operation& call, std::uint64_t number) override {
    std::vector<int> missing;
    for (int rank = 0; number != 0 && rank < host_->size(); ++rank) {
      if (const auto* theirs = host_->health().board_of(rank); theirs != nullptr && theirs->begun.load() < number) {
        missing.push_back(rank);
      }
    }
    // The other ranks read it, too.
    std::string why = "what rank " + std::to_string(host_->rank()) + " put on its device has not ended within " +
                      format_duration(call.timeout);
    why += missing.empty() ? "."
                           : "; it is device operation #" + std::to_string(number) + ", which " + list_ranks(missing) +
                                 (missing.size() == 1 ? " has" : " have") + " not begun.";
    remember(why);
    host_->health().expire(context(call, number), why, missing);
    abort();
    host_->health().check_device_operation(context(call, number), 0);
    throw timeout_error(context(call, number), why, missing);
  }

  [[nodiscard]] int current_device() const override {
    int device = 0;
    api_.check(api_.cudaGetDevice(&device), "cudaGetDevice", std::source_location::current());
    return device;
  }
  void use_device(int device) const noexcept override { (void)api_.cudaSetDevice(device); }

 protected:
  [[nodiscard]] error_context context(const operation& call, std::uint64_t number) const {
    return {host_->rank(), host_->size(), call_name(call), number, call.where};
  }

  /// The device that memory is on; for none at all the current one. Throws usage_error where it is on none.
  int device_of(const operation& call, device_memory memory) {
    if (const int known = pointers_.known(memory); known >= 0 && memory.bytes != 0) [[likely]] {
      return known;
    }
    return ask_for_device(call, memory);
  }

  /// Both on one device, which is returned.
  int device_of(const operation& call, device_memory in, device_memory out) {
    const int device = device_of(call, out.bytes != 0 ? out : in);
    if (in.bytes != 0 && in.data != out.data) {
      if (const int other = device_of(call, in); other != device) [[unlikely]] {
        reject(call,
               "the input is on device " + std::to_string(other) + ", the output on device " + std::to_string(device));
      }
    }
    return device;
  }

  /// The number of the operation that was begun last; 0: a message.
  [[nodiscard]] std::uint64_t current() const noexcept { return current_; }

  /// Bad input, found here: the other ranks hear of it.
  [[noreturn]] void reject(const operation& call, const std::string& why) {
    refuse(current_, why);
    throw usage_error(context(call, current_), why);
  }

  /// The group is lost: throws why.
  [[noreturn]] void throw_lost(const operation& call) {
    abort();
    const auto here = context(call, sequence());
    host_->health().check_device_operation(here, 0);
    const std::scoped_lock lock(loss_mutex_);
    throw engine_error(here, loss_.empty() ? "the device operations of this group were aborted" : loss_);
  }

  /// This rank gives up: the others hear it, and what waits on the devices is freed. The first reason stays.
  void lose(const operation& call, std::uint64_t number, const std::string& why) {
    remember(why);
    host_->health().condemn(context(call, number), why);
    abort();
  }
  void remember(const std::string& why) {
    const std::scoped_lock lock(loss_mutex_);
    loss_ = loss_.empty() ? why : loss_;
  }

  device_lane& lane_of(const operation& call, device_memory memory) {
    const auto device = static_cast<std::size_t>(device_of(call, memory));
    const std::scoped_lock lock(lanes_mutex_);
    if (lanes_.size() <= device) {
      lanes_.resize(device + 1);
    }
    if (!lanes_[device]) {
      lanes_[device] = std::make_unique<device_lane>(api_, static_cast<int>(device));
    }
    return *lanes_[device];
  }

  const cuda::runtime_api& api_;       // NOLINT(*non-private-member*)
  std::shared_ptr<host_engine> host_;  // NOLINT(*non-private-member*)
  std::atomic<bool> lost_{false};      // NOLINT(*non-private-member*): set before anything is aborted
  rendezvous::fork_guard creator_;     // NOLINT(*non-private-member*)

 private:
  int ask_for_device(const operation& call, device_memory memory) {
    if (memory.bytes == 0) {
      return current_device();
    }
    std::string problem;
    const int device = pointers_.find(api_, memory, problem);
    if (device < 0) {
      reject(call, problem);
    }
    return device;
  }

  static constexpr std::chrono::microseconds spin_time{20};
  static constexpr std::chrono::milliseconds check_interval{5};

  device_board* board_;
  std::atomic<std::uint64_t> sequence_{0};
  std::uint64_t current_ = 0;
  device_pointers pointers_;
  std::mutex lanes_mutex_;
  std::vector<std::unique_ptr<device_lane>> lanes_;  // by device
  std::mutex loss_mutex_;
  std::string loss_;
};

}  // namespace hfcomm::engines
