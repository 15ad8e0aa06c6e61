// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>

namespace hfcomm::engines {

/// This process's part in connecting its machine to the others of a job.
class machine_connection {
 public:
  machine_connection() = default;
  machine_connection(const machine_connection&) = delete;
  machine_connection& operator=(const machine_connection&) = delete;
  virtual ~machine_connection() = default;

  /// Tells the other machines at once how this machine's ranks have ended, as far as they have. Waits `limit` at most,
  /// and for no lock: std::terminate may have been called on a thread that holds one.
  virtual void report_endings(std::chrono::milliseconds limit) noexcept = 0;

  /// Ends this process's part of the job: waits until this machine's ranks have ended and all that they wrote has
  /// arrived, but not longer than `limit`. Returns whether all of it did; true in the child of a fork, which has no
  /// part.
  [[nodiscard]] virtual bool finish(std::chrono::milliseconds limit) = 0;
};

}  // namespace hfcomm::engines
