// SPDX-License-Identifier: MIT
#pragma once

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <vector>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/torch_backend/store_rendezvous.hpp>

/// c10d's monitored barrier, which names the ranks that do not come. It goes through the store: a deadline that passes
/// leaves the group usable.
namespace hfcomm::torch_backend_detail {

/// The time that is left of a barrier; a store takes 0 for no deadline.
class barrier_deadline {
 public:
  explicit barrier_deadline(std::chrono::milliseconds timeout)
      : timeout_(timeout), end_(std::chrono::steady_clock::now() + timeout) {}

  [[nodiscard]] std::string text() const { return detail::concat({timeout_.count(), " ms"}); }
  [[nodiscard]] bool has_passed() const { return std::chrono::steady_clock::now() >= end_; }
  [[nodiscard]] std::chrono::milliseconds left() const {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end_ - std::chrono::steady_clock::now());
    return std::max(left, std::chrono::milliseconds(1));
  }

 private:
  std::chrono::milliseconds timeout_;
  std::chrono::steady_clock::time_point end_;
};

/// Returns whether the key is set before the deadline. Throws what the store throws for other reasons.
inline bool is_set_before(::c10d::Store& store, const std::string& key, const barrier_deadline& deadline) {
  try {
    store.wait({key}, deadline.left());
    return true;
  } catch (const std::exception&) {
    if (!deadline.has_passed()) {
      throw;
    }
    return false;
  }
}

/// Returns why rank 0 does not pass; empty: all ranks have come. With `wait_all_ranks` it names all that are missing.
inline std::string await_others(::c10d::Store& store, const std::string& prefix, int size,
                                const barrier_deadline& deadline, bool wait_all_ranks) {
  std::string missing;
  bool several = false;
  for (int rank = 1; rank < size; ++rank) {
    if (!wait_all_ranks && deadline.has_passed()) {
      return detail::concat(
          {"Rank 0 timed out in monitoredBarrier after ", deadline.text(), ", while it waited for rank ", rank});
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
                                           " failed to pass monitoredBarrier in ", deadline.text()});
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
  const barrier_deadline deadline(timeout);
  if (size == 1) {
    return;
  }
  const std::string prefix = detail::concat({"monitored_barrier/", number, "/"});
  if (rank == 0) {
    const std::string problem = await_others(store, prefix, size, deadline, wait_all_ranks);
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
