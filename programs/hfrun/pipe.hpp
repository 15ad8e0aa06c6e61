// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <string>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <hfcomm/machine/roster.hpp>
#include <hfcomm/machine/shared_segment.hpp>

namespace hfrun {

using hfcomm::rendezvous::unique_fd;

/// Returns the ends to read and to write, which programs that are executed do not inherit. Throws engine_error, which
/// says what the pipe is for.
inline std::pair<unique_fd, unique_fd> make_pipe(const std::string& purpose) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    hfcomm::rendezvous::throw_system("making a pipe for " + purpose);
  }
  return {unique_fd(ends[0]), unique_fd(ends[1])};
}

}  // namespace hfrun
