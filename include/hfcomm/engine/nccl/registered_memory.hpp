// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <source_location>
#include <utility>

#include <hfcomm/core/nccl_options.hpp>
#include <hfcomm/cuda/nccl_api.hpp>
#include <hfcomm/cuda/runtime_api.hpp>
#include <hfcomm/cuda/teardown.hpp>
#include <hfcomm/engine/device/device_plane.hpp>
#include <hfcomm/engine/nccl/nccl_translation.hpp>
#include <hfcomm/machine/bounded_call.hpp>
#include <hfcomm/machine/fork_guard.hpp>

namespace hfcomm::engines {

/// The registration of memory with a communicator. Either may end first, and that ends the registration.
class nccl_registration {
 public:
  nccl_registration(const cuda::nccl_api& nccl, ncclComm_t comm) noexcept : nccl_(nccl), comm_(comm) {}
  nccl_registration(const nccl_registration&) = delete;
  nccl_registration& operator=(const nccl_registration&) = delete;
  ~nccl_registration() = default;

  /// Registers the memory. All ranks call it with the same `bytes`, and it may wait for them.
  ///
  /// Since NCCL 2.27 it becomes a symmetric window, through which NCCL reads and writes the other ranks' memory
  /// directly; before that, a registered buffer. Does nothing where NCCL has no use for it.
  ncclResult_t begin(void* data, std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    const ncclComm_t comm = comm_.load();
    if (comm == nullptr) {
      return ncclInvalidUsage;  // the communicator was aborted before this thread came here
    }
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    if (nccl_.ncclCommWindowRegister != nullptr && nccl_.ncclCommWindowDeregister != nullptr) {
      // NCCL leaves the window as it is where it has no use for one.
      return nccl_.ncclCommWindowRegister(comm, data, bytes, &window_, NCCL_WIN_COLL_SYMMETRIC);
    }
#endif
    if (nccl_.ncclCommRegister != nullptr && nccl_.ncclCommDeregister != nullptr) {
      return nccl_.ncclCommRegister(comm, data, bytes, &handle_);
    }
    return ncclSuccess;
  }

  /// Ends the registration. Called before the communicator is destroyed, and before the memory is freed. The second
  /// call waits for the first one and does nothing.
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
  /// Drops the registration, before the communicator is aborted. A `begin` or `end` that runs has some time to return,
  /// and no more, because it may wait for that abort.
  void abort() noexcept {
    const std::unique_lock lock(mutex_, grace_);
    comm_.store(nullptr);
  }
  [[nodiscard]] bool has_ended() const noexcept { return comm_.load() == nullptr; }

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

/// Memory of a device that may be registered with a communicator. Its destructor waits, for a bounded time, until the
/// device has done its work, and then frees the memory. It does not after main, when CUDA may be gone.
class registered_memory {
 public:
  /// Allocates on the current device: by ncclMemAlloc where there is an `nccl`, because NCCL makes most use of such
  /// memory when it is registered; otherwise by cudaMalloc. Throws engine_error.
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
        detail::throw_error<engine_error>({-1, 0, "ncclMemAlloc", 0, where},
                                          {bytes, " bytes: ", nccl_text(*nccl_, result)});
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
              [&cuda = cuda_, nccl = nccl_, data = data_, registration = std::move(registration_)] {
                (void)cuda.cudaDeviceSynchronize();
                if (registration) {
                  registration->end();
                }
                nccl != nullptr ? void(nccl->ncclMemFree(data)) : void(cuda.cudaFree(data));
              });
  }

  [[nodiscard]] void* data() const noexcept { return data_; }
  /// Sets the registration that ends before the memory is freed.
  void set_registration(std::shared_ptr<nccl_registration> registration) noexcept {
    registration_ = std::move(registration);
  }

  /// Returns a pointer to the memory's bytes that owns the memory.
  [[nodiscard]] static std::shared_ptr<std::byte> bytes_of(std::shared_ptr<registered_memory> memory) {
    auto* const data = static_cast<std::byte*>(memory->data());
    return {std::move(memory), data};
  }

 private:
  const cuda::runtime_api& cuda_;
  const cuda::nccl_api* nccl_;
  int device_;
  void* data_ = nullptr;
  std::shared_ptr<nccl_registration> registration_;
  rendezvous::fork_guard creator_;
};

}  // namespace hfcomm::engines
