// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <fake/kernel.hpp>
#include <fake/streams.hpp>

/// The frame of NCCL's functions: how a call begins and ends, and the thread's NCCL group.
namespace fake_cuda::detail {

/// A kernel that is being put together, and its streams.
struct planned_kernel {
  kernel what{};
  std::vector<CUstream_st*> streams{};
  std::shared_ptr<capture> graph{};
};

/// The calls of a thread since ncclGroupStart.
struct group_calls {
  std::uint64_t world = 0;
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<planned_kernel> kernels{};
  std::vector<std::pair<std::shared_ptr<ncclComm>, std::shared_ptr<pending_job>>> jobs{};
};

inline group_calls& calls_of_group(const world& all) {
  thread_local group_calls mine;
  if (mine.world != all.number) {
    mine = {};
    mine.world = all.number;
  }
  return mine;
}

inline ncclResult_t refuse(world& all, ncclResult_t result, std::string why) {
  facts(all).last_nccl_problem = std::move(why);
  return result;
}

/// Makes one call of NCCL: counts it, and returns a planned fault. An error inside an NCCL group becomes the error of
/// the group.
template <class Body>
ncclResult_t nccl_call(const char* name, int device, Body body) {
  const auto all = here();
  if (all == nullptr) {
    return ncclInternalError;
  }
  const int code = all->book.enter(name, device == any_device ? facts(*all).device : device);
  const auto result =
      code != 0 ? refuse(*all, static_cast<ncclResult_t>(code), std::string(name) + " was told to fail") : body(*all);
  auto& group = calls_of_group(*all);
  if (result != ncclSuccess && result != ncclInProgress && group.depth > 0) {
    group.error = result;
  }
  return result;
}

/// Makes one call of NCCL on an existing communicator, by `body(world, shared_ptr<ncclComm>)`.
template <class Body>
ncclResult_t comm_call(const char* name, ncclComm_t handle, Body body) {
  const auto all = here();
  const auto comm = all == nullptr ? nullptr : all->find(handle);
  return nccl_call(name, comm == nullptr ? any_device : comm->device, [&](world& current) {
    if (comm == nullptr) {
      return refuse(current, ncclInvalidArgument, std::string(name) + ": comm is no communicator (any more)");
    }
    return body(current, comm);
  });
}

/// Does the same on a communicator that is not busy and has no error.
template <class Body>
ncclResult_t ready_comm_call(const char* name, ncclComm_t handle, Body body) {
  return comm_call(name, handle, [&](world& all, const std::shared_ptr<ncclComm>& comm) {
    if (const auto state = comm->ready(); state != ncclSuccess) {
      return refuse(all, state,
                    std::string(name) +
                        ": the communicator is busy, failed or aborted (an attempt to use it before "
                        "the previous operation returned ncclSuccess)");
    }
    return body(all, comm);
  });
}

/// Takes the result of a job, on the thread that learns of its end.
inline ncclResult_t conclude(const std::shared_ptr<ncclComm>& comm, const std::shared_ptr<pending_job>& job) {
  ncclResult_t result = ncclSuccess;
  {
    const std::scoped_lock lock(comm->mutex);
    result = job->done ? job->result : ncclInternalError;  // otherwise it was aborted
    if (comm->pending == job) {
      comm->pending = nullptr;
    }
  }
  if (result == ncclSuccess && job->conclude) {
    result = job->conclude();
  }
  if (result != ncclSuccess) {
    const std::scoped_lock lock(comm->mutex);
    comm->error = result;
  }
  return result;
}

inline ncclResult_t wait_for_job(const std::shared_ptr<ncclComm>& comm, const std::shared_ptr<pending_job>& job) {
  {
    std::unique_lock lock(comm->mutex);
    comm->changed.wait(lock, [&] { return job->done || comm->aborted.load(); });
  }
  return conclude(comm, job);
}

/// Starts a job that waits for other ranks, on a thread of its own. On a blocking communicator the caller waits for it,
/// in an NCCL group at its end.
inline ncclResult_t start_job(world& all, const std::shared_ptr<ncclComm>& comm, int polls,
                              std::function<ncclResult_t()> work, std::function<ncclResult_t()> conclusion = {}) {
  auto job = std::make_shared<pending_job>();
  job->polls = polls;
  job->conclude = std::move(conclusion);
  {
    const std::scoped_lock lock(comm->mutex);
    comm->pending = job;
  }
  all.start_helper([&all, comm, job, work = std::move(work)] {
    auto result = ncclInternalError;
    try {
      result = work();
    } catch (const std::exception& problem) {
      if (!comm->aborted.load()) {
        all.note(problem.what());
        comm->wait_until_aborted();
      }
    }
    const std::scoped_lock lock(comm->mutex);
    job->result = comm->aborted.load() ? ncclInternalError : result;
    job->done = true;
    comm->changed.notify_all();
  });
  if (!comm->blocking) {
    return ncclInProgress;
  }
  if (auto& group = calls_of_group(all); group.depth > 0) {
    group.jobs.emplace_back(comm, job);
    return ncclSuccess;
  }
  return wait_for_job(comm, job);
}

}  // namespace fake_cuda::detail
