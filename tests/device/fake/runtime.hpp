// SPDX-License-Identifier: MIT
#pragma once

#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <fake/streams.hpp>

/// The CUDA runtime's functions on devices, memory and errors.
namespace fake_cuda::detail {

inline cudaError_t record_error(const world& all, cudaError_t status) {
  if (status != cudaSuccess) {
    facts(all).last_error = status;
  }
  return status;
}

/// Makes one call of the runtime: counts it, and returns a planned fault.
template <class Body>
cudaError_t runtime_call(const char* name, Body body) {
  const auto all = here();
  if (all == nullptr) {
    return cudaErrorCudartUnloading;
  }
  if (const int code = all->book.enter(name, facts(*all).device); code != 0) {
    return record_error(*all, static_cast<cudaError_t>(code));
  }
  return record_error(*all, body(*all));
}

inline cudaError_t runtime_get_version(int* version) {
  return runtime_call("cudaRuntimeGetVersion", [&](world&) {
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

inline const char* get_error_string(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorHostMemoryAlreadyRegistered: return "part or all of the requested memory range is already mapped";
    case cudaErrorHostMemoryNotRegistered: return "pointer does not correspond to a registered memory region";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated: return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureIsolation: return "dependency created on uncaptured work in another stream";
    case cudaErrorStreamCaptureImplicit: return "operation would make the legacy stream depend on a capturing stream";
    case cudaErrorCapturedEvent: return "operation not permitted on an event last recorded in a capturing stream";
    default: return "an error of the fake CUDA";
  }
}

inline cudaError_t get_last_error() {
  const auto all = here();
  return all == nullptr ? cudaSuccess : std::exchange(facts(*all).last_error, cudaSuccess);
}

inline cudaError_t get_device_count(int* count) {
  return runtime_call("cudaGetDeviceCount", [&](world& all) {
    *count = all.devices.load();
    return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
  });
}

inline cudaError_t get_device(int* device) {
  return runtime_call("cudaGetDevice", [&](world& all) {
    *device = facts(all).device;
    return cudaSuccess;
  });
}

inline cudaError_t set_device(int device) {
  return runtime_call("cudaSetDevice", [&](world& all) {
    if (device < 0 || device >= all.devices.load()) {
      return cudaErrorInvalidDevice;
    }
    facts(all).device = device;
    return cudaSuccess;
  });
}

inline cudaError_t device_get_pci_bus_id(char* text, int length, int device) {
  return runtime_call("cudaDeviceGetPCIBusId", [&](world& all) {
    if (text == nullptr || length < 13 || device < 0 || device >= all.devices.load()) {
      return cudaErrorInvalidValue;
    }
    std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0", (0x10 + device) & 0xff);
    return cudaSuccess;
  });
}

inline cudaError_t device_get_stream_priority_range(int* least, int* greatest) {
  return runtime_call("cudaDeviceGetStreamPriorityRange", [&](world&) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
  });
}

inline cudaError_t thread_exchange_stream_capture_mode(cudaStreamCaptureMode* mode) {
  return runtime_call("cudaThreadExchangeStreamCaptureMode", [&](world& all) {
    std::swap(*mode, facts(all).capture_mode);
    return cudaSuccess;
  });
}

inline cudaError_t pointer_get_attributes(cudaPointerAttributes* attributes, const void* pointer) {
  return runtime_call("cudaPointerGetAttributes", [&](world& all) {
    *attributes = {};
    void* writable = const_cast<void*>(pointer);  // NOLINT(cppcoreguidelines-pro-type-const-cast): as CUDA does
    if (const auto found = all.memory.find(pointer)) {
      const bool on_host = is_on_host(found->kind);
      attributes->type = on_host ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
      attributes->device = found->device;
      attributes->devicePointer = writable;
      attributes->hostPointer = on_host ? writable : nullptr;
    } else {
      attributes->type = cudaMemoryTypeUnregistered;
      attributes->device = -2;
      attributes->hostPointer = writable;
    }
    return cudaSuccess;
  });
}

inline cudaError_t malloc_device(void** pointer, std::size_t bytes) {
  return runtime_call("cudaMalloc", [&](world& all) {
    *pointer = all.memory.allocate(bytes, memory_kind::device, facts(all).device);
    return cudaSuccess;
  });
}

/// Frees memory after the work that is on its device by now, as CUDA does.
inline cudaError_t free_device(void* pointer) {
  return runtime_call("cudaFree", [&](world& all) {
    std::vector<moment> under_way;
    if (const auto what = all.memory.find(pointer)) {
      const std::scoped_lock lock(all.mutex);
      for (const auto& [handle, stream] : all.streams) {
        if (stream->device == what->device && stream->recording.graph == nullptr) {
          under_way.push_back(stream->thread->last());
        }
      }
      const auto found = all.default_streams.find(what->device);
      if (found != all.default_streams.end() && found->second->recording.graph == nullptr) {
        under_way.push_back(found->second->thread->last());
      }
    }
    for (const auto& one : under_way) {
      one.wait();
    }
    const bool fine =
        pointer == nullptr || all.memory.free(pointer, [](memory_kind kind) { return kind == memory_kind::device; });
    return fine ? cudaSuccess : cudaErrorInvalidValue;
  });
}

inline cudaError_t host_alloc(void** pointer, std::size_t bytes, unsigned /*flags*/) {
  return runtime_call("cudaHostAlloc", [&](world& all) {
    *pointer = all.memory.allocate(bytes, memory_kind::host, facts(all).device);
    return cudaSuccess;
  });
}

inline cudaError_t free_host(void* pointer) {
  return runtime_call("cudaFreeHost", [&](world& all) {
    const bool fine =
        pointer == nullptr || all.memory.free(pointer, [](memory_kind kind) { return kind == memory_kind::host; });
    return fine ? cudaSuccess : cudaErrorInvalidValue;
  });
}

inline cudaError_t host_register(void* pointer, std::size_t bytes, unsigned flags) {
  return runtime_call("cudaHostRegister", [&](world& all) {
    constexpr unsigned known =
        cudaHostRegisterPortable | cudaHostRegisterMapped | cudaHostRegisterIoMemory | cudaHostRegisterReadOnly;
    if (pointer == nullptr || bytes == 0 || (flags & ~known) != 0) {
      return cudaErrorInvalidValue;
    }
    return all.memory.add(pointer, bytes, facts(all).device) ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered;
  });
}

inline cudaError_t host_unregister(void* pointer) {
  return runtime_call("cudaHostUnregister", [&](world& all) {
    return pointer == nullptr           ? cudaErrorInvalidValue
           : all.memory.remove(pointer) ? cudaSuccess
                                        : cudaErrorHostMemoryNotRegistered;
  });
}

}  // namespace fake_cuda::detail
