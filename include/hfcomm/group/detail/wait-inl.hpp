// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <optional>
#include <span>
#include <utility>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/group/detail/work-inl.hpp>
#include <hfcomm/group/wait.hpp>

namespace hfcomm::detail {

/// Works that tell one watcher when they are done.
class watched_works {
 public:
  explicit watched_works(std::span<work_state* const> works) : works_(works) {}
  watched_works(const watched_works&) = delete;
  watched_works& operator=(const watched_works&) = delete;
  ~watched_works() {
    for (std::size_t index = 0; index < watched_; ++index) {
      works_[index]->unwatch(watcher_);
    }
  }

  /// Returns the index of the first work that is done; nullopt where none is, and all are watched.
  [[nodiscard]] std::optional<std::size_t> watch(bool forever) {
    for (; watched_ < works_.size(); ++watched_) {
      work_state& one = *works_[watched_];
      if (forever && !one.done()) {
        one.begin_wait();
      }
      if (!one.watch(watcher_)) {
        return watched_;
      }
      one.help(false);
    }
    return std::nullopt;
  }

  void wait_until(const std::chrono::steady_clock::time_point* deadline) { watcher_.wait_until(deadline); }

 private:
  std::span<work_state* const> works_;
  work_watcher watcher_;
  std::size_t watched_ = 0;
};

HFCOMM_INLINE std::optional<std::size_t> wait_for_one(std::span<work_state* const> works,
                                                      const std::chrono::steady_clock::time_point* deadline) {
  if (works.empty()) {
    throw_error<usage_error>({"wait_any of no works would wait for ever"});
  }
  watched_works watched(works);
  if (const auto done = watched.watch(deadline == nullptr)) {
    return done;
  }
  watched.wait_until(deadline);
  for (std::size_t index = 0; index < works.size(); ++index) {
    if (works[index]->done()) {
      return index;
    }
  }
  return std::nullopt;
}

HFCOMM_INLINE bool wait_for_each(std::span<work_state* const> works,
                                 const std::chrono::steady_clock::time_point* deadline) {
  bool all = true;
  for (work_state* const one : works) {
    all = one->wait_until(deadline) && all;
  }
  return all;
}

HFCOMM_INLINE void rethrow_first(std::span<work_state* const> works) {
  std::exception_ptr first;
  for (work_state* const one : works) {
    auto problem = one->problem();
    first = first ? std::move(first) : std::move(problem);
  }
  if (first) {
    std::rethrow_exception(std::move(first));
  }
}

}  // namespace hfcomm::detail
