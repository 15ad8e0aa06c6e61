// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <type_traits>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm {

namespace detail {

/// The common part of `master_first`, `local_master_first` and `run_master_only`. Rank 0 enters at once and releases
/// the others when it closes the section. The others wait in the constructor.
class master_section {
 public:
  master_section(operation_name name, const process_group& group, std::chrono::nanoseconds timeout, call_site where);
  master_section(const master_section&) = delete;
  master_section& operator=(const master_section&) = delete;
  ~master_section();

  template <class Function>
  std::invoke_result_t<Function&> run(Function& function) {
    try {
      return std::invoke(function);
    } catch (...) {
      close_for_exception();
      throw;
    }
  }

 private:
  /// Releases the others; they throw where `failure` is not null. The group's next operation throws an error of this
  /// function. Does nothing on the other ranks and when called again.
  void close(const std::string* failure) noexcept;
  /// Makes the others throw with the exception's text. To be called in a handler.
  void close_for_exception() noexcept;

  process_group group_;
  operation call_;
  int exceptions_;
  bool closed_ = false;
};

}  // namespace detail

/// A scope whose body runs on the group's rank 0 first, then on all the others at once:
///
///     hfcomm::master_first guard;
///     load_or_download(data);      // rank 0 downloads, the others find it there
///
/// The other ranks wait in the constructor, up to `timeout` (a deadline of its own: a download may take longer than
/// any operation should), but notice a dead rank 0 at once. Where rank 0 leaves the scope by an exception, their
/// constructors throw peer_error, and their body does not run. The error has the exception's text only if the exception
/// ends the rank, because a destructor does not know the exception. With `run_master_first` it always has the text.
///
/// Inside the scope rank 0 must not call operations of this group: nobody could answer (usage_error). The destructor
/// neither blocks nor throws. (TRELLIS' `master_first`, accelerate's `main_process_first`.)
class master_first {
 public:
  static constexpr std::chrono::nanoseconds default_timeout = std::chrono::hours(24);

  explicit master_first(const process_group& group = world(), std::chrono::nanoseconds timeout = default_timeout,
                        call_site where = call_site::current())
      : section_("master_first", group, timeout, where) {}

 private:
  detail::master_section section_;
};

/// Runs `function` on rank 0 first, then on the others; returns each rank's own value. Where it throws on rank 0, every
/// other rank throws peer_error with the exception's text and does not run it.
template <class Function>
std::invoke_result_t<Function&> run_master_first(Function function, const process_group& group = world(),
                                                 std::chrono::nanoseconds timeout = master_first::default_timeout,
                                                 call_site where = call_site::current()) {
  return detail::master_section("master_first", group, timeout, where).run(function);
}

}  // namespace hfcomm
