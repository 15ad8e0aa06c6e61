// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <type_traits>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/scopes/master_first.hpp>

namespace hfcomm {

/// A `master_first` among the ranks of each machine: the machine's first rank runs the body first, then its other
/// ranks. Machines do not wait for each other. (TRELLIS guesses the first rank from the number of GPUs; here it is the
/// one that shares memory with the others.)
class local_master_first {
 public:
  explicit local_master_first(std::chrono::nanoseconds timeout = master_first::default_timeout,
                              call_site where = call_site::current())
      : section_("local_master_first", local_group(), timeout, where) {}

 private:
  detail::master_section section_;
};

/// Runs `function` as `run_master_first` does, on each machine by itself.
template <class Function>
std::invoke_result_t<Function&> run_local_master_first(Function function,
                                                       std::chrono::nanoseconds timeout = master_first::default_timeout,
                                                       call_site where = call_site::current()) {
  return detail::master_section("local_master_first", local_group(), timeout, where).run(function);
}

}  // namespace hfcomm
