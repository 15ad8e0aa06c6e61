// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <fake/graph.hpp>
#include <fake/tables.hpp>

/// A test double of the CUDA runtime and of NCCL. Streams are threads, device memory is host memory, and collectives
/// are hfcomm's own. Ranks are threads of this process, each with its own current device, or processes.
///
/// Any thread may call the functions here while an `install` lives. The "device" of a call is its communicator's, or
/// else the calling thread's current one.
namespace fake_cuda {

/// A scope in which the double replaces CUDA and NCCL. It begins with no counts and no planned faults. At its end all
/// communicators are aborted, the streams finish their work, and all memory is freed.
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

// Settings.

inline void set_device_count(int devices) { here()->devices.store(devices); }

/// Sets the result of ncclGetVersion, on one device or on all.
inline void set_nccl_version(int version, int device = any_device) {
  const auto all = here();
  const std::scoped_lock lock(all->mutex);
  all->versions[device] = version;
}

/// The kinds of ranks for unique ids that are made from here on. The default is processes where this one is a rank of
/// hfcomm::launch or hfcomm::init, and threads elsewhere.
enum class ranks_are : int { threads = 1, processes = 2 };
inline void set_ranks(ranks_are mode) { here()->ranks_mode.store(static_cast<int>(mode)); }

/// Makes each copy take that long on its stream, so that who does not wait for it finds old data.
inline void set_copy_time(std::chrono::microseconds time) {
  for (auto& one : here()->copy_times) {
    one.store(time);
  }
}
/// The same for the copies of one kind.
inline void set_copy_time(cudaMemcpyKind kind, std::chrono::microseconds time) { here()->copy_times[kind].store(time); }

// Faults.

/// Makes the nth call (from 1, counted from now) of a function on a device return `result` and do nothing else.
inline void fail_call(const std::string& function, std::uint64_t nth, ncclResult_t result, int device = any_device) {
  here()->book.fail(function, nth, static_cast<int>(result), device);
}
inline void fail_call(const std::string& function, std::uint64_t nth, cudaError_t result, int device = any_device) {
  here()->book.fail(function, nth, static_cast<int>(result), device);
}
/// Makes ncclCommGetAsyncError report this error for ever, after so many more calls.
inline void async_error_after(std::uint64_t polls, ncclResult_t result, int device = any_device) {
  here()->book.fail_async(polls, result, device);
}
/// Makes the kernels that the device's communicators launch from now on spin until they are aborted. They take part in
/// nothing.
inline void never_complete(int device = any_device) { here()->never_complete.shut(device); }
inline void complete_again() { here()->never_complete.open(); }
/// Makes ncclCommAbort hang before it has any effect.
inline void hang_abort(int device = any_device) { here()->hanging_aborts.shut(device); }
inline void release_aborts() { here()->hanging_aborts.open(); }
inline void hang_destroy(int device = any_device) { here()->hanging_destroys.shut(device); }
inline void release_destroys() { here()->hanging_destroys.open(); }
/// Keeps the device's communicators from connecting to the other ranks.
inline void hang_init(int device = any_device) { here()->hanging_inits.shut(device); }
inline void release_inits() { here()->hanging_inits.open(); }
/// Makes operations on the device's blocking communicators hang until they are aborted, as where NCCL connects ranks in
/// the call and one does not come.
inline void hang_calls(int device = any_device) { here()->hanging_calls.shut(device); }
inline void release_calls() { here()->hanging_calls.open(); }
/// Returns the number of threads that hang in ncclCommAbort or ncclCommDestroy now.
inline int hanging() {
  const auto all = here();
  return all->hanging_aborts.waiting() + all->hanging_destroys.waiting();
}

// Observations.

/// Returns the number of calls of a function of CUDA or NCCL, by its name.
[[nodiscard]] inline std::uint64_t calls(const std::string& function) { return here()->book.calls(function); }

/// Returns the copies of a device in the order in which they were put on streams.
[[nodiscard]] inline std::vector<copy_record> copies(int device) {
  const auto all = here();
  const std::scoped_lock lock(all->mutex);
  std::vector<copy_record> found;
  std::copy_if(all->copies.begin(), all->copies.end(), std::back_inserter(found),
               [&](const copy_record& one) { return one.device == device; });
  return found;
}

/// Returns the number of accesses of device work to freed memory or to memory of another device.
[[nodiscard]] inline std::uint64_t illegal_accesses() { return here()->illegal_accesses.load(); }

/// Returns the exceptions that kernels have thrown, and the reasons why operations spin.
[[nodiscard]] inline std::vector<std::string> problems() {
  const auto all = here();
  const std::scoped_lock lock(all->mutex);
  return all->problems;
}

/// Numbers of objects that were made and not yet destroyed. Destroying a communicator destroys its registrations,
/// windows and operators.
struct live_objects {
  std::size_t streams = 0;
  std::size_t events = 0;
  std::size_t allocations = 0;
  std::size_t communicators = 0;
  std::size_t registrations = 0;
  std::size_t red_ops = 0;
  std::size_t registered_ranges = 0;  // of host memory

  friend bool operator==(const live_objects&, const live_objects&) = default;
};

[[nodiscard]] inline live_objects live() {
  const auto all = here();
  const std::scoped_lock lock(all->mutex);
  live_objects found{all->streams.size(),           all->events.size(),  all->memory.count(),
                     all->communicators.size(),     all->windows.size(), 0,
                     all->memory.count_registered()};
  for (const auto& [handle, comm] : all->communicators) {
    const std::scoped_lock comm_lock(comm->mutex);
    found.registrations += comm->registrations.size();
    found.red_ops += comm->sums.size();
  }
  return found;
}

/// Returns the communicators that were made and not yet destroyed. With them, a test aborts one whose initialization
/// blocks.
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
