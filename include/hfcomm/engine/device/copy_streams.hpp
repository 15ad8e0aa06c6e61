// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/cuda/owned_memory.hpp>
#include <hfcomm/cuda/runtime_api.hpp>
#include <hfcomm/cuda/teardown.hpp>
#include <hfcomm/engine/device/device_resources.hpp>
#include <hfcomm/engine/device/pointer_cache.hpp>
#include <hfcomm/engine/device_copies.hpp>
#include <hfcomm/machine/bounded_call.hpp>
#include <hfcomm/machine/fork_guard.hpp>

namespace hfcomm::engines {

/// The copies of the device that is current in the constructor, by the CUDA runtime.
class copy_streams final : public device_copies {
 public:
  copy_streams(const cuda::runtime_api& api, const error_context& context) : api_(api), context_(context) {
    process_end::watch();
    check(api_.cudaGetDevice(&device_), "cudaGetDevice", context.where);
    parts_ = std::make_unique<parts>(api_, device_);
    try {
      down_ = checked([&] { return parts_->down.stream(context.where); }, context.where);
      up_ = checked([&] { return parts_->up.stream(context.where); }, context.where);
    } catch (...) {
      parts_->destroy(api_);
      throw;
    }
  }

  /// The copies may wait for work of the caller's that never ends. Then a thread of its own waits on, with everything
  /// that they use.
  ~copy_streams() override {
    if (!creator_.in_creating_process() || process_end::begun()) {
      (void)parts_.release();  // NOLINT(*unused-return-value): CUDA does not work there
      return;
    }
    tear_down(api_, device_, "ending the copies",
              [&api = api_, down = down_, up = up_, own = std::move(parts_)]() mutable {
                (void)api.cudaStreamSynchronize(down.get());
                (void)api.cudaStreamSynchronize(up.get());
                own->destroy(api);
              });
  }

  [[nodiscard]] stream_ref down() const noexcept override { return down_; }
  [[nodiscard]] stream_ref up() const noexcept override { return up_; }
  void use_device() const noexcept override { (void)api_.cudaSetDevice(device_); }

  [[nodiscard]] std::string problem_of(device_memory memory) override {
    std::string problem;
    int found = memory.bytes == 0 ? device_ : pointers_.find(memory);
    found = found < 0 ? pointers_.query(api_, memory, problem) : found;
    return found < 0 || found == device_
               ? problem
               : detail::concat({"it is on device ", found, ", not on the current one, ", device_});
  }

  void register_memory(std::shared_ptr<void> owner, std::span<std::byte> memory, std::source_location where) override {
    parts_->registered.reserve(parts_->registered.size() + 1);
    const cudaError_t status = checked(
        [&] {
          const cuda::device_guard on_device(api_, device_);
          return api_.cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterPortable);
        },
        where);
    check(
        status, "cudaHostRegister", where,
        detail::concat(
            {"; page-locking ", memory.size(),
             " bytes of the group's shared memory failed: raise the limit of locked memory (ulimit -l, in a container "
             "--ulimit memlock=-1), or train without host_reduce"}));
    parts_->registered.push_back({std::move(owner), memory.data()});
  }

  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes, stream_ref stream,
                                                    std::source_location where) override {
    if (bytes == 0) {
      return nullptr;
    }
    const auto memory = checked(
        [&] {
          const cuda::device_guard on_device(api_, device_);
          return std::make_shared<cuda::owned_memory>(cuda::owned_memory::place::device, bytes, sizeof(std::byte),
                                                      where);
        },
        where);
    check(api_.cudaMemsetAsync(memory->data(), 0, bytes, stream.get()), "cudaMemsetAsync", where);
    return {memory, static_cast<std::byte*>(memory->data())};
  }

  void copy_down(const std::byte* from, std::byte* to, std::size_t bytes, std::source_location where) override {
    copy(from, to, bytes, cudaMemcpyDeviceToHost, down_, where);
  }
  void copy_up(const std::byte* from, std::byte* to, std::size_t bytes, std::source_location where) override {
    copy(from, to, bytes, cudaMemcpyHostToDevice, up_, where);
  }
  void copy_within(const std::byte* from, std::byte* to, std::size_t bytes, stream_ref stream,
                   std::source_location where) override {
    copy(from, to, bytes, cudaMemcpyDeviceToDevice, stream, where);
  }

  [[nodiscard]] event_handle make_event(std::source_location where) override {
    return checked([&] { return parts_->down.take_event(where); }, where);
  }
  void record(event_handle event, stream_ref stream, std::source_location where) override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(api_.cudaStreamIsCapturing(stream.get(), &status), "cudaStreamIsCapturing", where);
    if (status != cudaStreamCaptureStatusNone) {
      detail::throw_error<usage_error>(
          at(where), {"a pass with host_reduce cannot be captured in a graph: the host takes part in it"});
    }
    check(api_.cudaEventRecord(event, stream.get()), "cudaEventRecord", where);
  }
  void order(stream_ref stream, event_handle event, std::source_location where) override {
    check(api_.cudaStreamWaitEvent(stream.get(), event, 0), "cudaStreamWaitEvent", where);
  }
  [[nodiscard]] bool is_reached(event_handle event, std::source_location where) override {
    const cuda::relaxed_capture relaxed(api_);
    return checked([&] { return api_.is_ready(api_.cudaEventQuery(event), "cudaEventQuery", where); }, where);
  }

 private:
  /// The things that the copies use. They end after the last copy.
  struct parts {
    struct registration {
      std::shared_ptr<void> owner;
      void* data;
    };

    parts(const cuda::runtime_api& api, int device) : down(api, device), up(api, device) {}

    void destroy(const cuda::runtime_api& api) noexcept {
      for (auto& one : registered) {
        (void)api.cudaHostUnregister(one.data);
        one.owner.reset();
      }
      down.destroy();
      up.destroy();
    }

    device_resources down;
    device_resources up;
    std::vector<registration> registered;
  };

  [[nodiscard]] error_context at(std::source_location where) const {
    error_context here = context_;
    here.where = where;
    return here;
  }

  /// Throws engine_error, which names this rank, unless `status` is success. `what` names the call.
  void check(cudaError_t status, const char* what, std::source_location where, const std::string& remedy = {}) const {
    checked([&] { api_.check(status, what, where); }, where, remedy);
  }

  /// Returns `work()`, whose errors then name this rank.
  template <class Work>
  [[nodiscard]] std::invoke_result_t<Work> checked(Work work, std::source_location where,
                                                   const std::string& remedy = {}) const {
    try {
      return work();
    } catch (const engine_error& problem) {
      detail::throw_error<engine_error>(at(where), {problem.context().operation, ": ", problem.detail(), remedy});
    }
  }

  void copy(const std::byte* from, std::byte* to, std::size_t bytes, cudaMemcpyKind kind, stream_ref stream,
            std::source_location where) {
    if (bytes != 0) {
      check(api_.cudaMemcpyAsync(to, from, bytes, kind, stream.get()), "cudaMemcpyAsync", where);
    }
  }

  const cuda::runtime_api& api_;
  error_context context_;
  int device_ = 0;
  std::unique_ptr<parts> parts_;
  stream_ref down_ = stream_ref::legacy_default();
  stream_ref up_ = stream_ref::legacy_default();
  pointer_cache pointers_;
  rendezvous::fork_guard creator_;
};

}  // namespace hfcomm::engines
