// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <fake/graph.hpp>
#include <fake/tables.hpp>

/// A test double of the CUDA runtime and of NCCL: streams are threads, device memory is host memory, and collectives
/// are hfcomm's own. Ranks are threads of this process, each with its own current device, or processes. Every function
/// here may be called from any thread while an `install` lives; "device" is that of the communicator, or where a call
/// has none the calling thread's current one.
namespace fake_cuda {

/// Puts the fake in the place of CUDA and NCCL for a scope: a new one, with nothing counted and no fault planned. At
/// the end all communicators are aborted, the streams' work gets finished, and all memory is gone.
class install {
 public:
  install() {
    set(std::make_shared<world>());
    hfcomm::cuda::use_runtime(&runtime_table());
    hfcomm::cuda::use_nccl(&nccl_table());
  }
  install(const install&) = delete;
  install& operator=(const install&) = delete;
  ~install() {
    hfcomm::cuda::use_runtime(nullptr);
    hfcomm::cuda::use_nccl(nullptr);
    if (const auto ended = set(nullptr)) {
      ended->shut_down();
    }
  }

 private:
  static std::shared_ptr<world> set(std::shared_ptr<world> value) {
    auto& current = detail::current();
    const std::scoped_lock lock(current.mutex);
    return std::exchange(current.value, std::move(value));
  }
};

// What there is.

inline void set_device_count(int devices) { here()->devices.store(devices); }

/// What ncclGetVersion says, on one device or on all.
inline void set_nccl_version(int version, int device = any_device) {
  const auto all = here();
  const std::scoped_lock lock(all->mutex);
  all->versions[device] = version;
}

/// Whether the ranks of the ids made from here on are threads or processes. Unless told, the fake guesses: processes
/// where this one is a rank of hfcomm::launch or hfcomm::init.
enum class ranks_are : int { threads = 1, processes = 2 };
inline void set_ranks(ranks_are mode) { here()->ranks_mode.store(static_cast<int>(mode)); }

// Faults.

/// The nth call (from 1, from now on) of that function on that device gives `result` and does nothing else.
inline void fail_call(const std::string& function, std::uint64_t nth, ncclResult_t result, int device = any_device) {
  here()->book.fail(function, nth, static_cast<int>(result), device);
}
inline void fail_call(const std::string& function, std::uint64_t nth, cudaError_t result, int device = any_device) {
  here()->book.fail(function, nth, static_cast<int>(result), device);
}
/// After that many more calls, ncclCommGetAsyncError tells of this error, for good.
inline void async_error_after(std::uint64_t polls, ncclResult_t result, int device = any_device) {
  here()->book.fail_async(polls, result, device);
}
/// What is launched from now on by that device's communicators takes no part in anything and spins until aborted.
inline void never_complete(int device = any_device) { here()->never_complete.shut(device); }
inline void complete_again() { here()->never_complete.open(); }
/// ncclCommAbort hangs before it has any effect.
inline void hang_abort(int device = any_device) { here()->hanging_aborts.shut(device); }
inline void release_aborts() { here()->hanging_aborts.open(); }
inline void hang_destroy(int device = any_device) { here()->hanging_destroys.shut(device); }
inline void release_destroys() { here()->hanging_destroys.open(); }
/// Communicators of that device do not come to meet the others.
inline void hang_init(int device = any_device) { here()->hanging_inits.shut(device); }
inline void release_inits() { here()->hanging_inits.open(); }
/// Operations of that device's blocking communicators do not return, as where NCCL connects ranks in vain, until they
/// are aborted.
inline void hang_calls(int device = any_device) { here()->hanging_calls.shut(device); }
inline void release_calls() { here()->hanging_calls.open(); }
/// How many threads hang in ncclCommAbort or ncclCommDestroy now.
inline int hanging() {
  const auto all = here();
  return all->hanging_aborts.waiting() + all->hanging_destroys.waiting();
}

// What happened.

/// How often a function of CUDA or NCCL was called, by its name.
[[nodiscard]] inline std::uint64_t calls(const std::string& function) { return here()->book.calls(function); }

/// How often work on a device was given memory that is not there or not for it.
[[nodiscard]] inline std::uint64_t illegal_accesses() { return here()->illegal_accesses.load(); }

/// Why operations spin, and what kernels have thrown.
[[nodiscard]] inline std::vector<std::string> problems() {
  const auto all = here();
  const std::scoped_lock lock(all->mutex);
  return all->problems;
}

/// What was made and not yet destroyed. A communicator takes its registrations, windows and operators with it.
struct live_objects {
  std::size_t streams = 0;
  std::size_t events = 0;
  std::size_t allocations = 0;
  std::size_t communicators = 0;
  std::size_t registrations = 0;
  std::size_t red_ops = 0;

  friend bool operator==(const live_objects&, const live_objects&) = default;
};

[[nodiscard]] inline live_objects live() {
  const auto all = here();
  const std::scoped_lock lock(all->mutex);
  live_objects found{all->streams.size(),       all->events.size(),  all->memory.count(),
                     all->communicators.size(), all->windows.size(), 0};
  for (const auto& [handle, comm] : all->communicators) {
    const std::scoped_lock comm_lock(comm->mutex);
    found.registrations += comm->registrations.size();
    found.red_ops += comm->sums.size();
  }
  return found;
}

/// The communicators that were made and not yet destroyed: for aborting one whose initialization blocks.
[[nodiscard]] inline std::vector<ncclComm_t> communicators(int device = any_device) {
  const auto all = here();
  const std::scoped_lock lock(all->mutex);
  std::vector<ncclComm_t> found;
  for (const auto& [handle, comm] : all->communicators) {
    if (device == any_device || comm->device == device) {
      found.push_back(handle);
    }
  }
  return found;
}

}  // namespace fake_cuda
