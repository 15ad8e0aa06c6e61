// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fake/capture.hpp>
#include <fake/communicator.hpp>
#include <fake/faults.hpp>
#include <fake/meeting.hpp>
#include <fake/memory.hpp>

namespace fake_cuda {

/// A copy that was put on a stream.
struct copy_record {
  cudaMemcpyKind kind;
  std::size_t bytes;
  int device;
};

/// The state of the double. Each `install` has its own.
struct world {
  world() = default;
  world(const world&) = delete;
  world& operator=(const world&) = delete;
  ~world() { shut_down(); }

  const std::uint64_t number = [] {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
  }();
  std::atomic<int> devices{8};
  memory_map memory{};
  call_book book{};
  meeting_places meetings{};
  gate never_complete{};
  gate hanging_aborts{};
  gate hanging_destroys{};
  gate hanging_inits{};
  gate hanging_calls{};
  std::atomic<std::uint64_t> illegal_accesses{0};
  std::array<std::atomic<std::chrono::microseconds>, 5> copy_times{};  // by cudaMemcpyKind
  std::atomic<int> ranks_mode{0};                                      // 0: default, 1: threads, 2: processes

  std::mutex mutex{};
  // All members below are protected by the mutex.
  std::map<CUstream_st*, std::unique_ptr<CUstream_st>> streams{};
  std::map<int, std::unique_ptr<CUstream_st>> default_streams{};
  std::vector<std::shared_ptr<work_thread>> threads{};
  std::map<CUevent_st*, std::unique_ptr<CUevent_st>> events{};
  std::map<ncclComm*, std::shared_ptr<ncclComm>> communicators{};
  std::vector<std::shared_ptr<ncclComm>> ended_communicators{};  // kept, so that their addresses are not used again
  std::map<ncclWindow_vidmem*, std::unique_ptr<ncclWindow_vidmem>> windows{};

  std::vector<copy_record> copies{};
  std::vector<std::thread> helpers{};
  std::vector<std::string> problems{};
  std::map<int, int> versions{};

  /// Runs work that must not end the process. Its exceptions are added to `problems`.
  void guarded(const std::function<void()>& work) {
    try {
      work();
    } catch (const std::exception& problem) {
      note(problem.what());
    } catch (...) {
      note("something that is no std::exception");
    }
  }
  void note(std::string problem) {
    const std::scoped_lock lock(mutex);
    problems.push_back(std::move(problem));
  }

  void start_helper(std::function<void()> work) {
    const std::scoped_lock lock(mutex);
    helpers.emplace_back([this, work = std::move(work)] { guarded(work); });
  }

  [[nodiscard]] std::shared_ptr<ncclComm> find(ncclComm* handle) {
    const std::scoped_lock lock(mutex);
    const auto found = communicators.find(handle);
    return found == communicators.end() ? nullptr : found->second;
  }
  ncclComm* add(const std::shared_ptr<ncclComm>& comm) {
    const std::scoped_lock lock(mutex);
    communicators[comm.get()] = comm;
    return comm.get();
  }
  /// Removes a communicator. Returns false where another thread has done so.
  bool retire(const std::shared_ptr<ncclComm>& comm) {
    {
      const std::scoped_lock lock(mutex);
      if (communicators.erase(comm.get()) == 0) {
        return false;
      }
      ended_communicators.push_back(comm);
      std::erase_if(windows, [&](const auto& window) { return window.second->owner == comm.get(); });
    }
    comm->release();
    return true;
  }

  /// Frees everything that waits, finishes the streams' work, and joins all threads.
  void shut_down() {
    for (auto* each : {&never_complete, &hanging_aborts, &hanging_destroys, &hanging_inits, &hanging_calls}) {
      each->open();
    }
    std::vector<std::shared_ptr<ncclComm>> all;
    std::vector<std::shared_ptr<work_thread>> workers;
    std::vector<std::thread> others;
    {
      const std::scoped_lock lock(mutex);
      for (const auto& [handle, comm] : communicators) {
        all.push_back(comm);
      }
      workers.swap(threads);
      others.swap(helpers);
    }
    for (const auto& comm : all) {
      comm->abort();
    }
    for (auto& helper : others) {
      helper.join();
    }
    for (const auto& worker : workers) {
      worker->finish();
    }
    for (const auto& worker : workers) {
      worker->join();
    }
  }
};

namespace detail {

struct current_world {
  std::mutex mutex{};
  std::shared_ptr<world> value{};
};

inline current_world& current() {
  static current_world here;
  return here;
}

/// The state that CUDA and NCCL keep for a thread. It is reset where there is a new world.
struct thread_facts {
  std::uint64_t world = 0;
  int device = 0;
  cudaError_t last_error = cudaSuccess;
  cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
  std::string last_nccl_problem{};
};

inline thread_facts& facts(const world& all) {
  thread_local thread_facts mine;
  if (mine.world != all.number) {
    mine = {};
    mine.world = all.number;
  }
  return mine;
}

}  // namespace detail

/// Returns the installed world; null where there is none.
inline std::shared_ptr<world> here() {
  auto& current = detail::current();
  const std::scoped_lock lock(current.mutex);
  return current.value;
}

}  // namespace fake_cuda
