// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <source_location>
#include <string>
#include <utility>

#include <hfcomm/core/nccl_options.hpp>
#include <hfcomm/cuda/nccl_api.hpp>
#include <hfcomm/cuda/runtime_api.hpp>
#include <hfcomm/cuda/teardown.hpp>
#include <hfcomm/engine/device/device_plane.hpp>
#include <hfcomm/engine/nccl/types.hpp>
#include <hfcomm/machine/bounded_call.hpp>
#include <hfcomm/machine/fork_guard.hpp>

namespace hfcomm::engines {

/// What a communicator knows of memory. Both may end first: whoever does undoes it.
class nccl_registration {
 public:
  nccl_registration(const cuda::nccl_api& nccl, ncclComm_t comm) noexcept : nccl_(nccl), comm_(comm) {}
  nccl_registration(const nccl_registration&) = delete;
  nccl_registration& operator=(const nccl_registration&) = delete;
  ~nccl_registration() = default;

  /// As a window, with which NCCL reads and writes the ranks' memory directly where they lie symmetrically; before 2.27
  /// as a buffer. Where NCCL has no use for it this does nothing. All ranks call it, with as many bytes; may wait for
  /// them.
  ncclResult_t begin(void* data, std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    const ncclComm_t comm = comm_.load();
    if (comm == nullptr) {
      return ncclInvalidUsage;  // it was given up before this thread came to it
    }
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    if (nccl_.ncclCommWindowRegister != nullptr && nccl_.ncclCommWindowDeregister != nullptr) {
      // Where NCCL does nothing it leaves the window as it is.
      return nccl_.ncclCommWindowRegister(comm, data, bytes, &window_, NCCL_WIN_COLL_SYMMETRIC);
    }
#endif
    if (nccl_.ncclCommRegister != nullptr && nccl_.ncclCommDeregister != nullptr) {
      return nccl_.ncclCommRegister(comm, data, bytes, &handle_);
    }
    return ncclSuccess;
  }

  /// Before the communicator is destroyed, or the memory freed; what comes second does nothing, once the first is
  /// through.
  void end() noexcept {
    const std::scoped_lock lock(mutex_);
    const ncclComm_t comm = comm_.exchange(nullptr);
    if (comm == nullptr) {
      return;
    }
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    if (window_ != nullptr) {
      (void)nccl_.ncclCommWindowDeregister(comm, window_);
    }
#endif
    if (handle_ != nullptr) {
      (void)nccl_.ncclCommDeregister(comm, handle_);
    }
  }
  /// Before the communicator is aborted. Gives a `begin` or `end` that is under way some time to return, but where it
  /// does not, this may be what it waits for.
  void forget() noexcept {
    const std::unique_lock lock(mutex_, grace_);
    comm_.store(nullptr);
  }
  [[nodiscard]] bool ended() const noexcept { return comm_.load() == nullptr; }

 private:
  const cuda::nccl_api& nccl_;
  std::timed_mutex mutex_;
  std::chrono::nanoseconds grace_ = default_nccl_options().teardown_timeout / 4;
  std::atomic<ncclComm_t> comm_;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  ncclWindow_t window_ = nullptr;
#endif
  void* handle_ = nullptr;
};

/// Memory of a device that a communicator may know. It is given back once the device has come to an end with all that
/// it was given by then, which is waited for in bounded time; but not after main, when CUDA may be gone.
class registered_memory {
 public:
  /// Of the current device. NCCL's own kind, which it likes best, where there is an `nccl`. Throws engine_error.
  registered_memory(const cuda::runtime_api& cuda, const cuda::nccl_api* nccl, int device, std::size_t bytes,
                    const std::source_location& where)
      : cuda_(cuda), nccl_(nccl != nullptr && nccl->ncclMemAlloc != nullptr ? nccl : nullptr), device_(device) {
    process_end::watch();
    if (bytes == 0) {
      return;
    }
    if (nccl_ != nullptr) {
      if (const ncclResult_t result = nccl_->ncclMemAlloc(&data_, bytes); result != ncclSuccess) {
        data_ = nullptr;
        throw engine_error({-1, 0, "ncclMemAlloc", 0, where},
                           std::to_string(bytes) + " bytes: " + nccl_text(*nccl_, result));
      }
    } else {
      cuda_.check(cuda_.cudaMalloc(&data_, bytes), "cudaMalloc", where);
    }
  }
  registered_memory(const registered_memory&) = delete;
  registered_memory& operator=(const registered_memory&) = delete;
  ~registered_memory() {
    if (data_ == nullptr || process_end::begun() || !creator_.in_creating_process()) {
      return;
    }
    tear_down(cuda_, device_, "giving back memory",
              [&cuda = cuda_, nccl = nccl_, data = data_, known = std::move(known_)] {
                (void)cuda.cudaDeviceSynchronize();
                if (known) {
                  known->end();
                }
                nccl != nullptr ? void(nccl->ncclMemFree(data)) : void(cuda.cudaFree(data));
              });
  }

  [[nodiscard]] void* data() const noexcept { return data_; }
  /// To be undone before it is given back.
  void known_as(std::shared_ptr<nccl_registration> known) noexcept { known_ = std::move(known); }

  /// Its bytes, which keep it.
  [[nodiscard]] static std::shared_ptr<std::byte> bytes_of(std::shared_ptr<registered_memory> memory) {
    auto* const data = static_cast<std::byte*>(memory->data());
    return {std::move(memory), data};
  }

 private:
  const cuda::runtime_api& cuda_;
  const cuda::nccl_api* nccl_;
  int device_;
  void* data_ = nullptr;
  std::shared_ptr<nccl_registration> known_;
  rendezvous::fork_guard creator_;
};

}  // namespace hfcomm::engines
