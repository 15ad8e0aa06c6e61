// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <source_location>
#include <string>
#include <type_traits>

#include <hfcomm/group/detail/running_call.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm {

namespace detail {

/// What `master_first` and its relatives share: rank 0 passes at once and lets the others go when it closes the
/// section; the others wait in the constructor.
class master_section {
 public:
  master_section(operation_name name, const process_group& group, std::chrono::nanoseconds patience,
                 std::source_location where)
      : group_(group.with_timeout(patience)),
        call_{.name = name, .where = where},
        exceptions_(std::uncaught_exceptions()) {
    running_call running(group_, call_);
    if (group_.rank() == 0) {
      running.engine().prepare(call_);
      ++group_access::state(group_).master_sections;
    } else {
      running.engine().await(call_, 0);
    }
  }
  master_section(const master_section&) = delete;
  master_section& operator=(const master_section&) = delete;
  ~master_section() {
    const std::string untold;
    close(std::uncaught_exceptions() > exceptions_ ? &untold : nullptr);
  }

  /// Lets the others go, by an exception where `failure` says so. Keeps what goes wrong here for the group's next
  /// operation. Does nothing on the others and when called again.
  void close(const std::string* failure) noexcept {
    if (group_.rank() != 0 || closed_) {
      return;
    }
    closed_ = true;
    auto& state = group_access::state(group_);
    --state.master_sections;
    try {
      running_call running(group_, call_);
      running.engine().announce(call_, failure);
    } catch (...) {
      defer(group_, std::current_exception());
    }
  }

  template <class Function>
  std::invoke_result_t<Function&> run(Function& function) {
    try {
      return std::invoke(function);
    } catch (...) {
      const std::string text = current_exception_text();
      close(&text);
      throw;
    }
  }

 private:
  process_group group_;
  operation call_;
  int exceptions_;
  bool closed_ = false;
};

}  // namespace detail

/// The body runs on the group's rank 0 first, then on all the others at once:
///
///     hfcomm::master_first guard;
///     load_or_download(data);      // rank 0 downloads, the others find it there
///
/// The other ranks wait in the constructor, up to `patience` (a deadline of its own: a download may take longer than
/// any operation should), but notice a dead rank 0 at once. Where rank 0 leaves the scope by an exception, their
/// constructors throw peer_error instead of running the body after a failed rank 0; it carries the exception's text
/// where the exception goes on to end the rank (a destructor cannot see it), `run_master_first` carries it always.
///
/// Inside the scope rank 0 must not call operations of this group: nobody could answer (usage_error). The destructor
/// neither blocks nor throws. (TRELLIS' `master_first`, accelerate's `main_process_first`.)
class master_first {
 public:
  static constexpr std::chrono::nanoseconds default_patience = std::chrono::hours(24);

  explicit master_first(const process_group& group = world(), std::chrono::nanoseconds patience = default_patience,
                        std::source_location where = std::source_location::current())
      : section_("master_first", group, patience, where) {}

 private:
  detail::master_section section_;
};

/// Runs `function` on rank 0 first, then on the others; returns each rank's own value. Where it throws on rank 0, every
/// other rank throws peer_error with the exception's text and does not run it.
template <class Function>
std::invoke_result_t<Function&> run_master_first(Function function, const process_group& group = world(),
                                                 std::chrono::nanoseconds patience = master_first::default_patience,
                                                 std::source_location where = std::source_location::current()) {
  return detail::master_section("master_first", group, patience, where).run(function);
}

}  // namespace hfcomm
