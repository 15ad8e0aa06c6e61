// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <memory>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm {

namespace detail {

class device_watcher;

}  // namespace detail

/// A thread that watches a group's device operations, until it is destroyed. It is for programs that wait for a stream
/// by other means than hfcomm's. For example, cudaStreamSynchronize waits for ever for a rank that is gone.
///
/// It acts where a rank is lost that an operation waits for, or where an operation has not ended `timeout` after it
/// began on its device. The time that the operation waits behind computation does not count. The watch then ends the
/// operation on the device, breaks the group, and prints the error, which names the culprit, to stderr. The program's
/// wait returns, the buffers' contents are undefined, and the group's next operation throws.
///
/// Operations in graphs are not watched. Of operations in an nccl_group_scope, only the call that puts them on their
/// streams is watched; a lost rank is also found while other operations run.
///
/// A group has at most one watch. It is not made or destroyed while another thread is in an operation of the group. It
/// costs two events for each operation.
class device_watch {
 public:
  /// Watches with the group's deadline as `timeout`. Connects the group where it is not connected (see connect_device).
  /// Throws usage_error where the group is watched already.
  explicit device_watch(const process_group& group = world(), call_site where = call_site::current());
  /// Watches with a `timeout`; zero or less stands for none. Otherwise the same.
  explicit device_watch(std::chrono::nanoseconds timeout, const process_group& group = world(),
                        call_site where = call_site::current());
  device_watch(const device_watch&) = delete;
  device_watch& operator=(const device_watch&) = delete;
  ~device_watch();

 private:
  std::unique_ptr<detail::device_watcher> watcher_;
};

}  // namespace hfcomm
