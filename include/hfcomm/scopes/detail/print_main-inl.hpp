// SPDX-License-Identifier: MIT
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>

#include <poll.h>
#include <unistd.h>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/scopes/print_main.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE void write_to_stdout(std::string_view text, const process_group& group) {
  std::cout.flush();
  std::fflush(stdout);
  while (!text.empty()) {
    const ::ssize_t count = ::write(STDOUT_FILENO, text.data(), text.size());
    if (count >= 0) {
      text.remove_prefix(static_cast<std::size_t>(count));  // less than all of it only where a pipe or a disk is full
    } else if (errno == EAGAIN) {
      ::pollfd room{STDOUT_FILENO, POLLOUT, 0};
      ::poll(&room, 1, -1);
    } else if (errno != EINTR) {
      throw_error<engine_error>({group.rank(), group.size(), "print_main", 0, {}},
                                {"cannot write to standard output: ", std::strerror(errno)});
    }
  }
}

}  // namespace hfcomm::detail
