// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

#include <hfcomm/comm.hpp>

#include <fake/nccl_call.hpp>

/// NCCL's functions on memory. Registrations are counted, and have no other effect.
namespace fake_cuda::detail {

inline ncclResult_t mem_alloc(void** pointer, std::size_t bytes) {
  return nccl_call("ncclMemAlloc", any_device, [&](world& all) {
    if (pointer == nullptr || bytes == 0) {
      return refuse(all, ncclInvalidArgument, "ncclMemAlloc : nothing to allocate");
    }
    *pointer = all.memory.allocate(bytes, memory_kind::nccl_device, facts(all).device);
    return ncclSuccess;
  });
}

inline ncclResult_t mem_free(void* pointer) {
  return nccl_call("ncclMemFree", any_device, [&](world& all) {
    const bool fine =
        pointer == nullptr || all.memory.free(pointer, [](memory_kind kind) { return kind != memory_kind::host; });
    return fine ? ncclSuccess : refuse(all, ncclUnhandledCudaError, "ncclMemFree : no memory of ncclMemAlloc");
  });
}

inline ncclResult_t comm_register(const ncclComm_t handle, void* buffer, std::size_t bytes, void** result) {
  return ready_comm_call("ncclCommRegister", handle, [&](world& all, const std::shared_ptr<ncclComm>& comm) {
    if (result == nullptr || buffer == nullptr || bytes == 0) {
      return refuse(all, ncclInvalidArgument, "ncclCommRegister : invalid argument");
    }
    auto registration = std::make_unique<char>();
    *result = registration.get();
    const std::scoped_lock lock(comm->mutex);
    comm->registrations[*result] = std::move(registration);
    return ncclSuccess;
  });
}

inline ncclResult_t comm_deregister(const ncclComm_t handle, void* registration) {
  return comm_call("ncclCommDeregister", handle, [&](world& all, const std::shared_ptr<ncclComm>& comm) {
    const std::scoped_lock lock(comm->mutex);
    return registration == nullptr || comm->registrations.erase(registration) != 0
               ? ncclSuccess
               : refuse(all, ncclInvalidArgument, "ncclCommDeregister : Deregistration of unknown handle");
  });
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)

/// Registers a window. Collective: every rank waits for the others.
inline ncclResult_t comm_window_register(ncclComm_t handle, void* buffer, std::size_t bytes, ncclWindow_t* result,
                                         int flags) {
  return comm_call("ncclCommWindowRegister", handle, [&](world& all, const std::shared_ptr<ncclComm>& comm) {
    if (buffer == nullptr || bytes == 0) {
      return ncclSuccess;  // as NCCL, which leaves *result as it is
    }
    if (const auto state = comm->ready(); state != ncclSuccess) {
      return refuse(all, state, "ncclCommWindowRegister : the communicator is busy, failed or aborted");
    }
    if (result == nullptr) {
      return refuse(all, ncclInvalidArgument, "ncclCommWindowRegister : win is NULL");
    }
    const auto work = [comm, bytes] {
      const auto control = comm->copy_of(comm->control);
      if (!control) {
        return ncclInternalError;
      }
      const auto sizes = hfcomm::all_gather(bytes, *control);
      return std::equal(sizes.begin() + 1, sizes.end(), sizes.begin()) ? ncclSuccess : ncclInvalidArgument;
    };
    return start_job(all, comm, 0, work, [&all, comm, buffer, bytes, result, flags] {
      auto window = std::make_unique<ncclWindow_vidmem>(ncclWindow_vidmem{comm.get(), buffer, bytes, flags});
      const std::scoped_lock lock(all.mutex);
      *result = window.get();
      all.windows[*result] = std::move(window);
      return ncclSuccess;
    });
  });
}

inline ncclResult_t comm_window_deregister(ncclComm_t handle, ncclWindow_t window) {
  return comm_call("ncclCommWindowDeregister", handle, [&](world& all, const std::shared_ptr<ncclComm>& comm) {
    const std::scoped_lock lock(all.mutex);
    if (window == nullptr) {
      return ncclSuccess;
    }
    const auto found = all.windows.find(window);
    if (found == all.windows.end() || found->second->owner != comm.get()) {
      return refuse(all, ncclInvalidArgument, "ncclCommWindowDeregister : no window of this communicator");
    }
    all.windows.erase(found);
    return ncclSuccess;
  });
}

#endif

}  // namespace fake_cuda::detail
