// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>

#include <cuda_runtime_api.h>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/machine/library.hpp>

namespace hfcomm::cuda {

/// The functions of the CUDA runtime that hfcomm calls, under their own names. With the table, a program that calls no
/// device operation runs where there is no CUDA, and tests use functions of their own. A type is spelled out where C++
/// has overloads of that name.
struct runtime_api {
  // NOLINTBEGIN(readability-identifier-naming): CUDA's names
  decltype(&::cudaRuntimeGetVersion) cudaRuntimeGetVersion = nullptr;
  decltype(&::cudaGetErrorString) cudaGetErrorString = nullptr;
  decltype(&::cudaGetLastError) cudaGetLastError = nullptr;
  decltype(&::cudaGetDeviceCount) cudaGetDeviceCount = nullptr;
  decltype(&::cudaGetDevice) cudaGetDevice = nullptr;
  decltype(&::cudaSetDevice) cudaSetDevice = nullptr;
  decltype(&::cudaDeviceSynchronize) cudaDeviceSynchronize = nullptr;
  decltype(&::cudaDeviceGetPCIBusId) cudaDeviceGetPCIBusId = nullptr;
  decltype(&::cudaDeviceGetStreamPriorityRange) cudaDeviceGetStreamPriorityRange = nullptr;
  decltype(&::cudaThreadExchangeStreamCaptureMode) cudaThreadExchangeStreamCaptureMode = nullptr;
  decltype(&::cudaPointerGetAttributes) cudaPointerGetAttributes = nullptr;
  cudaError_t (*cudaMalloc)(void**, std::size_t) = nullptr;
  decltype(&::cudaFree) cudaFree = nullptr;
  cudaError_t (*cudaHostAlloc)(void**, std::size_t, unsigned) = nullptr;
  decltype(&::cudaFreeHost) cudaFreeHost = nullptr;
  decltype(&::cudaHostRegister) cudaHostRegister = nullptr;
  decltype(&::cudaHostUnregister) cudaHostUnregister = nullptr;
  cudaError_t (*cudaMemcpyAsync)(void*, const void*, std::size_t, cudaMemcpyKind, cudaStream_t) = nullptr;
  cudaError_t (*cudaMemsetAsync)(void*, int, std::size_t, cudaStream_t) = nullptr;
  decltype(&::cudaStreamCreateWithPriority) cudaStreamCreateWithPriority = nullptr;
  decltype(&::cudaStreamDestroy) cudaStreamDestroy = nullptr;
  cudaError_t (*cudaStreamQuery)(cudaStream_t) = nullptr;
  cudaError_t (*cudaStreamSynchronize)(cudaStream_t) = nullptr;
  cudaError_t (*cudaStreamWaitEvent)(cudaStream_t, cudaEvent_t, unsigned) = nullptr;
  cudaError_t (*cudaStreamIsCapturing)(cudaStream_t, cudaStreamCaptureStatus*) = nullptr;
  cudaError_t (*cudaEventCreateWithFlags)(cudaEvent_t*, unsigned) = nullptr;
  decltype(&::cudaEventDestroy) cudaEventDestroy = nullptr;
  cudaError_t (*cudaEventRecord)(cudaEvent_t, cudaStream_t) = nullptr;
  decltype(&::cudaEventQuery) cudaEventQuery = nullptr;
  decltype(&::cudaEventSynchronize) cudaEventSynchronize = nullptr;
  decltype(&::cudaEventElapsedTime) cudaEventElapsedTime = nullptr;
#if CUDART_VERSION >= 12080
  // Null where the runtime is older than the headers.

  decltype(&::cudaLibraryLoadData) cudaLibraryLoadData = nullptr;
  decltype(&::cudaLibraryGetKernel) cudaLibraryGetKernel = nullptr;
  cudaError_t (*cudaLaunchKernel)(const void*, dim3, dim3, void**, std::size_t, cudaStream_t) = nullptr;
#endif
  // NOLINTEND(readability-identifier-naming)

  /// Throws engine_error, with CUDA's error text, unless `status` is success. `what` names the call.
  void check(cudaError_t status, const char* what, const call_site& where) const {
    if (status != cudaSuccess) [[unlikely]] {
      (void)cudaGetLastError();  // clears CUDA's copy of the error that is thrown
      hfcomm::detail::throw_error<engine_error>(
          {-1, 0, what, 0, where}, {cudaGetErrorString(status), " (CUDA error ", static_cast<int>(status), ')'});
    }
  }
  /// Returns whether a query has found its work done. Throws as `check` does.
  [[nodiscard]] bool is_ready(cudaError_t status, const char* what, const call_site& where) const {
    if (status == cudaErrorNotReady) {
      (void)cudaGetLastError();
      return false;
    }
    check(status, what, where);
    return true;
  }
};

namespace detail {

inline runtime_api load_runtime(const call_site& where) {
  const std::string versioned = hfcomm::detail::concat({"libcudart.so.", CUDART_VERSION / 1000});
  const hfcomm::detail::library found("the CUDA runtime", "HFCOMM_CUDART_LIBRARY", "cudaRuntimeGetVersion",
                                      {versioned.c_str(), "libcudart.so", "/usr/local/cuda/lib64/libcudart.so"});
  if (!found.is_found()) {
    hfcomm::detail::throw_error<engine_error>({-1, 0, "the CUDA runtime", 0, where}, {found.problem()});
  }
  runtime_api api;
#define HFCOMM_FILL(name) found.fill(api.name, #name, false, where)
#define HFCOMM_FILL_IF_THERE(name) found.fill(api.name, #name, true, where)
  HFCOMM_FILL(cudaRuntimeGetVersion);
  HFCOMM_FILL(cudaGetErrorString);
  HFCOMM_FILL(cudaGetLastError);
  HFCOMM_FILL(cudaGetDeviceCount);
  HFCOMM_FILL(cudaGetDevice);
  HFCOMM_FILL(cudaSetDevice);
  HFCOMM_FILL(cudaDeviceSynchronize);
  HFCOMM_FILL(cudaDeviceGetPCIBusId);
  HFCOMM_FILL(cudaDeviceGetStreamPriorityRange);
  HFCOMM_FILL(cudaThreadExchangeStreamCaptureMode);
  HFCOMM_FILL(cudaPointerGetAttributes);
  HFCOMM_FILL(cudaMalloc);
  HFCOMM_FILL(cudaFree);
  HFCOMM_FILL(cudaHostAlloc);
  HFCOMM_FILL(cudaFreeHost);
  HFCOMM_FILL(cudaHostRegister);
  HFCOMM_FILL(cudaHostUnregister);
  HFCOMM_FILL(cudaMemcpyAsync);
  HFCOMM_FILL(cudaMemsetAsync);
  HFCOMM_FILL(cudaStreamCreateWithPriority);
  HFCOMM_FILL(cudaStreamDestroy);
  HFCOMM_FILL(cudaStreamQuery);
  HFCOMM_FILL(cudaStreamSynchronize);
  HFCOMM_FILL(cudaStreamWaitEvent);
  HFCOMM_FILL(cudaStreamIsCapturing);
  HFCOMM_FILL(cudaEventCreateWithFlags);
  HFCOMM_FILL(cudaEventDestroy);
  HFCOMM_FILL(cudaEventRecord);
  HFCOMM_FILL(cudaEventQuery);
  HFCOMM_FILL(cudaEventSynchronize);
  HFCOMM_FILL(cudaEventElapsedTime);
#if CUDART_VERSION >= 12080

  HFCOMM_FILL_IF_THERE(cudaLibraryGetKernel);
  HFCOMM_FILL_IF_THERE(cudaLaunchKernel);
  HFCOMM_FILL_IF_THERE(cudaLibraryLoadData);
#endif
#undef HFCOMM_FILL_IF_THERE
#undef HFCOMM_FILL
  return api;
}

}  // namespace detail

/// Returns the CUDA runtime's functions, and loads the library at the first call. Throws engine_error, with the places
/// that were searched, where there is none. Any thread may call.
inline const runtime_api& runtime(call_site where = call_site::current()) {
  return hfcomm::detail::table_of(&detail::load_runtime, where);
}

/// Sets another table, which must outlive all users. Null returns to the library. For tests, and for programs that are
/// linked with a CUDA runtime that the loader does not find.
inline void use_runtime(const runtime_api* table) noexcept {
  hfcomm::detail::table_in_use<runtime_api>().store(table, std::memory_order_release);
}

/// A scope in which a device is the current one of this thread.
class device_guard {
 public:
  device_guard(const runtime_api& api, int device) : api_(api) {
    api_.check(api_.cudaGetDevice(&previous_), "cudaGetDevice", call_site::current());
    if (previous_ != device) {
      api_.check(api_.cudaSetDevice(device), "cudaSetDevice", call_site::current());
      has_changed_ = true;
    }
  }
  device_guard(const device_guard&) = delete;
  device_guard& operator=(const device_guard&) = delete;
  ~device_guard() {
    if (has_changed_) {
      (void)api_.cudaSetDevice(previous_);
    }
  }

 private:
  const runtime_api& api_;
  int previous_ = 0;
  bool has_changed_ = false;
};

/// A scope in which this thread may query events while another thread captures a graph.
class relaxed_capture {
 public:
  explicit relaxed_capture(const runtime_api& api) noexcept : api_(api) {
    (void)api_.cudaThreadExchangeStreamCaptureMode(&mode_);
  }
  relaxed_capture(const relaxed_capture&) = delete;
  relaxed_capture& operator=(const relaxed_capture&) = delete;
  ~relaxed_capture() { (void)api_.cudaThreadExchangeStreamCaptureMode(&mode_); }

 private:
  const runtime_api& api_;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// A scope in which a new thread of hfcomm's own works on a device. It sets the device before any other call of CUDA,
/// which would create a context on device 0.
class thread_on_device {
 public:
  thread_on_device(const runtime_api& api, int device) noexcept
      : relaxed_((static_cast<void>(api.cudaSetDevice(device)), api)) {}

 private:
  relaxed_capture relaxed_;
};

}  // namespace hfcomm::cuda
