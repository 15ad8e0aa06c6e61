// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/comm.hpp>
#include <hfcomm/group/detail/group_state.hpp>

#include <fake/nccl_call.hpp>
#include <fake/unique_id.hpp>

/// NCCL's functions that make, query and end communicators.
namespace fake_cuda::detail {

/// The timeout of operations: an operation that waits for a missing rank waits until it is aborted.
inline constexpr std::chrono::nanoseconds for_ever{0};

/// Gives a communicator a group for kernels and one for everything else, because both may run at the same time.
inline void open_groups(ncclComm& comm, const hfcomm::process_group& control) {
  comm.publish(comm.control, control);
  comm.publish(comm.data, control.split(0, comm.rank));
}

inline ncclResult_t connect(world& all, ncclComm& comm, const std::string& id) {
  all.hanging_inits.wait_while_shut(comm.device, [&] { return comm.aborted.load(); });
  if (comm.aborted.load()) {
    return ncclInternalError;
  }
  auto engine = meet(all, id, comm);
  if (engine == nullptr) {
    return ncclInternalError;
  }
  const auto control = hfcomm::detail::group_access::make(std::move(engine), for_ever);
  comm.publish(comm.control, control);
  auto devices = hfcomm::all_gather(comm.device, control);
  open_groups(comm, control);
  std::sort(devices.begin(), devices.end());
  return std::adjacent_find(devices.begin(), devices.end()) == devices.end() ? ncclSuccess : ncclInvalidUsage;
}

/// Returns whether a communicator with that configuration blocks, or nullopt for an invalid configuration.
inline std::optional<bool> blocks(const ncclConfig_t* config, bool otherwise) {
  if (config == nullptr) {
    return otherwise;
  }
  if (config->magic != 0xcafebeef ||
      (config->blocking != NCCL_CONFIG_UNDEF_INT && config->blocking != 0 && config->blocking != 1)) {
    return std::nullopt;
  }
  return config->blocking != 0;
}

inline ncclResult_t comm_init_rank_config(ncclComm_t* result, int ranks, ncclUniqueId id, int rank,
                                          ncclConfig_t* config) {
  return nccl_call("ncclCommInitRankConfig", any_device, [&](world& all) {
    if (result != nullptr) {
      *result = nullptr;
    }
    const auto blocking = blocks(config, true);
    const std::string text = text_of(id);
    if (result == nullptr || !blocking || ranks < 1 || rank < 0 || rank >= ranks || text.rfind("fake-nccl-", 0) != 0) {
      return refuse(all, ncclInvalidArgument,
                    "Invalid rank requested : " + std::to_string(rank) + '/' + std::to_string(ranks) +
                        ", or the id or the configuration is none");
    }
    auto comm = std::make_shared<ncclComm>();
    comm->device = facts(all).device;
    comm->rank = rank;
    comm->ranks = ranks;
    comm->blocking = *blocking;
    *result = all.add(comm);
    const auto status = start_job(all, comm, 2, [&all, comm, text] { return connect(all, *comm, text); });
    if (status == ncclInvalidUsage) {
      return refuse(all, status, "Duplicate GPU detected");
    }
    return status;
  });
}

inline ncclResult_t comm_split(ncclComm_t handle, int color, int key, ncclComm_t* result, ncclConfig_t* config) {
  return ready_comm_call("ncclCommSplit", handle, [&](world& all, const std::shared_ptr<ncclComm>& parent) {
    const auto blocking = blocks(config, parent->blocking);
    if (result == nullptr || !blocking || (color < 0 && color != NCCL_SPLIT_NOCOLOR)) {
      return refuse(all, ncclInvalidArgument, "ncclCommSplit : invalid color or configuration, or newcomm is NULL");
    }
    *result = nullptr;
    auto child = std::make_shared<ncclComm>();
    child->device = parent->device;
    child->blocking = *blocking;
    const bool inside = color != NCCL_SPLIT_NOCOLOR;
    const auto work = [parent, child, inside, color, key] {
      const auto control = parent->copy_of(parent->control);
      if (!control) {
        return ncclInternalError;
      }
      // A rank without a new communicator still takes part, and leaves its group at once.
      const auto group = control->split(inside ? color : std::numeric_limits<int>::max(), key);
      if (inside) {
        child->rank = group.rank();
        child->ranks = group.size();
        const auto data = group.split(0, group.rank());
        child->publish(child->control, group);
        child->publish(child->data, data);
      }
      return ncclSuccess;
    };
    const auto begun = start_job(all, parent, 2, work, [&all, child, inside, result] {
      if (inside) {
        *result = all.add(child);
      }
      return ncclSuccess;
    });
    return begun == ncclInProgress ? ncclSuccess : begun;  // as NCCL 2.18 to 2.30
  });
}

inline ncclResult_t comm_get_async_error(ncclComm_t handle, ncclResult_t* state) {
  return comm_call("ncclCommGetAsyncError", handle, [&](world& all, const std::shared_ptr<ncclComm>& comm) {
    if (state == nullptr) {
      return refuse(all, ncclInvalidArgument, "ncclGetAsyncError : asyncError argument is NULL");
    }
    const auto injected = all.book.poll(comm->device);
    std::shared_ptr<pending_job> job;
    {
      const std::scoped_lock lock(comm->mutex);
      if (injected != ncclSuccess) {
        comm->error = injected;
      }
      job = comm->pending;
      if (comm->error != ncclSuccess || job == nullptr) {
        *state = comm->error;
        return ncclSuccess;
      }
      if (job->polls > 0 || !job->done) {
        job->polls = std::max(job->polls - 1, 0);
        *state = ncclInProgress;
        return ncclSuccess;
      }
    }
    // The job of a blocking communicator ends in the call that started it.
    *state = comm->blocking ? ncclInProgress : conclude(comm, job);
    return ncclSuccess;
  });
}

inline ncclResult_t comm_destroy(ncclComm_t handle) {
  if (handle == nullptr) {
    return nccl_call("ncclCommDestroy", any_device, [](world&) { return ncclSuccess; });
  }
  return ready_comm_call("ncclCommDestroy", handle, [](world& all, const std::shared_ptr<ncclComm>& comm) {
    all.hanging_destroys.wait_while_shut(comm->device);
    comm->wait_until_idle();
    all.retire(comm);
    return ncclSuccess;
  });
}

/// Frees spinning kernels. Queued kernels end as soon as it is their turn.
inline ncclResult_t comm_abort(ncclComm_t handle) {
  if (handle == nullptr) {
    return nccl_call("ncclCommAbort", any_device, [](world&) { return ncclSuccess; });
  }
  return comm_call("ncclCommAbort", handle, [](world& all, const std::shared_ptr<ncclComm>& comm) {
    all.hanging_aborts.wait_while_shut(comm->device);
    comm->abort();
    all.retire(comm);
    return ncclSuccess;
  });
}

inline ncclResult_t comm_count(const ncclComm_t handle, int* count) {
  return ready_comm_call("ncclCommCount", handle, [&](world&, const std::shared_ptr<ncclComm>& comm) {
    *count = comm->ranks;
    return ncclSuccess;
  });
}

inline ncclResult_t comm_user_rank(const ncclComm_t handle, int* rank) {
  return ready_comm_call("ncclCommUserRank", handle, [&](world&, const std::shared_ptr<ncclComm>& comm) {
    *rank = comm->rank;
    return ncclSuccess;
  });
}

inline ncclResult_t get_version(int* version) {
  return nccl_call("ncclGetVersion", any_device, [&](world& all) {
    const std::scoped_lock lock(all.mutex);
    *version = NCCL_VERSION_CODE;
    for (const int device : {any_device, facts(all).device}) {
      if (const auto found = all.versions.find(device); found != all.versions.end()) {
        *version = found->second;
      }
    }
    return ncclSuccess;
  });
}

inline ncclResult_t get_unique_id(ncclUniqueId* id) {
  return nccl_call("ncclGetUniqueId", any_device, [&](world& all) {
    if (id == nullptr) {
      return refuse(all, ncclInvalidArgument, "ncclGetUniqueId : out argument is NULL");
    }
    *id = make_id(all);
    return ncclSuccess;
  });
}

inline const char* nccl_get_error_string(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    default: return "unknown result code";
  }
}

inline const char* nccl_get_last_error(ncclComm_t /*comm*/) {
  const auto all = here();
  return all == nullptr ? "" : facts(*all).last_nccl_problem.c_str();
}

}  // namespace fake_cuda::detail
