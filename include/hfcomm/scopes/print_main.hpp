// SPDX-License-Identifier: MIT
#pragma once

#include <ostream>
#include <sstream>
#include <string_view>

#include <hfcomm/group/process_group.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm {

namespace detail {

/// A type with an `operator<<` for streams.
template <class T>
concept printable = requires(std::ostream& stream, const T& value) { stream << value; };

/// Writes `text` to standard output in one piece, after the contents of the buffers of <cstdio> and <iostream>. The
/// streams' own writes would split a long line, and another process could write in between.
void write_to_stdout(std::string_view text, const process_group& group);

}  // namespace detail

/// Prints the arguments on the group's rank 0 alone, one after the other, as `operator<<` writes them, and an end of
/// line. That is one write to standard output, so lines of several processes do not mix. Earlier output through
/// <cstdio> or std::cout comes before it. The arguments are evaluated on every rank, formatted on rank 0 only.
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

/// Prints on rank 0 of all ranks.
template <detail::printable... Args>
void print_main(const Args&... args) {
  print_main(world(), args...);
}

}  // namespace hfcomm
