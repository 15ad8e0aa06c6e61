// SPDX-License-Identifier: MIT
#pragma once

#include <exception>

#include <hfcomm/group/process_group.hpp>

namespace hfcomm::detail {

/// Keeps an error that a destructor cannot throw for the group's next collective, which throws it. Only the first one
/// is kept. Any thread.
void defer(const process_group& group, std::exception_ptr problem) noexcept;

/// Collects, on the thread that made it, errors of destructors that no later operation of their group rethrew. Where
/// no sink is there, they are printed.
class deferred_error_sink {
 public:
  deferred_error_sink() noexcept;
  deferred_error_sink(const deferred_error_sink&) = delete;
  deferred_error_sink& operator=(const deferred_error_sink&) = delete;
  ~deferred_error_sink();

  static void add(const std::exception_ptr& problem) noexcept;

  /// Rethrows the first error that came, or the one that `world` still keeps; returns where there is none.
  void rethrow(const process_group& world);

 private:
  HFCOMM_PROCESS_STATE static deferred_error_sink*& current() noexcept;

  deferred_error_sink* previous_;
  std::exception_ptr first_;
};

}  // namespace hfcomm::detail
