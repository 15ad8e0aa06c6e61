// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <memory>
#include <source_location>

#include <hfcomm/group/session.hpp>

namespace hfcomm {

namespace detail {

class device_watcher;

}  // namespace detail

/// Watches a group's device operations from a thread, while it lives: for programs that wait for a stream by other
/// means than hfcomm's, cudaStreamSynchronize for instance, which would wait for ever for a rank that is gone.
///
/// Where an operation has not ended `timeout` after it began on its device (the time that it waits behind computation
/// does not count), or a rank is lost that it waits for, the device is freed, the group is broken with an error that
/// names the culprit, and a line says so on stderr. What was waited for then returns, with nothing of use in the
/// buffers; the group's next operation throws. Operations in graphs are not watched, and of those in an
/// nccl_group_scope only the call that puts them on the streams, except for lost ranks while others are under way.
///
/// One for each group, and not made or destroyed while another thread is inside an operation of the group. Costs two
/// marks on the stream for each operation.
class device_watch {
 public:
  /// Connects the group if it is not (see connect_device). Throws usage_error where the group is watched already.
  explicit device_watch(const process_group& group = world(),
                        std::source_location where = std::source_location::current());
  explicit device_watch(std::chrono::nanoseconds timeout, const process_group& group = world(),
                        std::source_location where = std::source_location::current());
  device_watch(const device_watch&) = delete;
  device_watch& operator=(const device_watch&) = delete;
  ~device_watch();

 private:
  std::unique_ptr<detail::device_watcher> watcher_;
};

}  // namespace hfcomm
