// SPDX-License-Identifier: MIT
#pragma once

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/machine/unix_socket.hpp>
#include <hfcomm/torch_backend/store_rendezvous.hpp>

/// c10d's monitored barrier, which names the ranks that do not come. It goes through the store: a deadline that passes
/// leaves the group usable.
namespace hfcomm::torch_backend_detail {

/// Returns whether the key is set before the deadline. Throws what the store throws for other reasons.
inline bool is_set_before(::c10d::Store& store, const std::string& key, const rendezvous::deadline& deadline) {
  try {
    store.wait({key}, std::chrono::milliseconds(std::max(deadline.milliseconds_left(), 1)));  // 0 is no deadline
    return true;
  } catch (const std::exception&) {
    if (!deadline.passed()) {
      throw;
    }
    return false;
  }
}

/// Returns why rank 0 does not pass; empty: all ranks have come. With `wait_all_ranks` it names all that are missing.
inline std::string await_others(::c10d::Store& store, const std::string& prefix, int size,
                                const rendezvous::deadline& deadline, std::chrono::milliseconds timeout,
                                bool wait_all_ranks) {
  std::string missing;
  bool several = false;
  for (int rank = 1; rank < size; ++rank) {
    if (!wait_all_ranks && deadline.passed()) {
      return detail::concat(
          {"Rank 0 timed out in monitoredBarrier after ", timeout.count(), " ms, while it waited for rank ", rank});
    }
    if (!is_set_before(store, detail::concat({prefix, rank}), deadline)) {
      several = !missing.empty();
      detail::append(missing, {several ? ", " : "", rank});
      if (!wait_all_ranks) {
        break;
      }
    }
  }
  return missing.empty() ? ""
                         : detail::concat({several ? "Ranks " : "Rank ", missing,
                                           " failed to pass monitoredBarrier in ", timeout.count(), " ms"});
}

/// Deletes the keys of a barrier that all ranks have passed. They remain where the store cannot delete keys, or has
/// ended with the process that serves it.
inline void delete_keys(::c10d::Store& store, const std::string& prefix, int rank, int size) {
  try {
    (void)store.deleteKey(detail::concat({prefix, rank}));
    if (store.add(detail::concat({prefix, "readers"}), 1) == size - 1) {  // nobody needs rank 0's answer any more
      (void)store.deleteKey(detail::concat({prefix, "readers"}));
      (void)store.deleteKey(detail::concat({prefix, "0"}));
    }
  } catch (const std::exception&) {
    return;
  }
}

/// Waits until all ranks have come; `number` is the same for all of them, and for no other barrier. Throws c10::Error
/// where some have not within `timeout`: rank 0 names them, and the others refer to rank 0. Leaves no key in a store
/// that can delete, unless it throws: ranks may come later.
inline void pass_monitored_barrier(::c10d::Store& store, std::uint64_t number, int rank, int size,
                                   std::chrono::milliseconds timeout, bool wait_all_ranks) {
  const rendezvous::deadline deadline{rendezvous::clock::now() + timeout};
  if (size == 1) {
    return;
  }
  const std::string prefix = detail::concat({"monitored_barrier/", number, "/"});
  if (rank == 0) {
    const std::string problem = await_others(store, prefix, size, deadline, timeout, wait_all_ranks);
    put_text(store, detail::concat({prefix, "0"}), problem);
    TORCH_CHECK(problem.empty(), problem);
    return;
  }
  put_text(store, detail::concat({prefix, rank}), "");
  const bool has_answer = is_set_before(store, detail::concat({prefix, "0"}), deadline);
  TORCH_CHECK(has_answer && get_text(store, detail::concat({prefix, "0"})).empty(), "Rank ", rank,
              " successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. ",
              "Please check rank 0 logs for faulty rank.");
  delete_keys(store, prefix, rank, size);
}

}  // namespace hfcomm::torch_backend_detail
