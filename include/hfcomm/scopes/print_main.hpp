// SPDX-License-Identifier: MIT
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>

#include <poll.h>
#include <unistd.h>

#include <hfcomm/group/process_group.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm {

namespace detail {

/// What can be written to a stream.
template <class T>
concept printable = requires(std::ostream& stream, const T& value) { stream << value; };

/// Hands `text` to standard output in one piece, behind what waits in the buffers of <cstdio> and <iostream>: their own
/// writes would cut a long line into pieces, between which another process may write.
inline void write_to_stdout(std::string_view text, const process_group& group) {
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
      throw engine_error({group.rank(), group.size(), "print_main", 0, {}},
                         std::string("cannot write to standard output: ") + std::strerror(errno));
    }
  }
}

}  // namespace detail

/// Prints on the group's rank 0 alone: the arguments one after the other, as `operator<<` writes them, and the end of
/// the line, in one write to standard output, so that lines of several processes do not mix. What was printed before
/// through <cstdio> or std::cout comes before it. The arguments are evaluated on every rank, formatted on rank 0 only.
///
/// Not collective. Throws engine_error, on rank 0, where standard output cannot be written to. Thread-safe.
template <detail::printable... Args>
void print_main(const process_group& group, const Args&... args) {
  if (group.rank() == 0) {
    std::ostringstream line;
    ((line << args), ...);
    line << '\n';
    detail::write_to_stdout(line.view(), group);
  }
}

/// The same on the rank 0 of all ranks.
template <detail::printable... Args>
void print_main(const Args&... args) {
  print_main(world(), args...);
}

}  // namespace hfcomm
