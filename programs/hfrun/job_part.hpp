// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

namespace hfrun {

/// The part of a job that one host runs. It reaches a remote host through the standard input of `hfrun --serve` there,
/// so that the secret among its variables is on no command line.
struct job_part {
  std::string host;
  std::string directory;
  std::string marker;  ///< Begins the lines of standard error that are for hfrun.
  int first_rank = 0;
  int ranks = 0;
  bool prefix = true;
  bool has_input = false;                ///< Whether rank 0 gets hfrun's standard input.
  std::vector<int> ignored_signals;      ///< Signals that the ranks ignore from their start.
  std::vector<std::string> environment;  ///< Variables for all ranks, NAME=VALUE.
  std::vector<std::string> command;
};

/// Returns "rank 3" or "ranks 0 to 3".
inline std::string ranks_of(const job_part& part) {
  const std::string first = std::to_string(part.first_rank);
  return part.ranks == 1 ? "rank " + first
                         : "ranks " + first + " to " + std::to_string(part.first_rank + part.ranks - 1);
}

/// Returns a part as strings that end with a null byte.
inline std::string to_bytes(const job_part& part) {
  std::string bytes;
  const auto add = [&](const std::string& text) { bytes.append(text).push_back('\0'); };
  add("hfrun2");
  add(part.host);
  add(part.directory);
  add(part.marker);
  add(std::to_string(part.first_rank));
  add(std::to_string(part.ranks));
  add(part.prefix ? "1" : "0");
  add(std::to_string(part.ignored_signals.size()));
  for (const int signal : part.ignored_signals) {
    add(std::to_string(signal));
  }
  for (const auto* list : {&part.environment, &part.command}) {
    add(std::to_string(list->size()));
    for (const auto& text : *list) {
      add(text);
    }
  }
  return bytes;
}

/// Reads a part, byte by byte, because signals follow it. Throws std::runtime_error where it is none.
inline job_part read_part(int descriptor) {
  std::size_t bytes_left = std::size_t{1} << 24;
  const auto next = [&] {
    std::string text;
    for (char letter = 0;;) {
      const ::ssize_t count = ::read(descriptor, &letter, 1);
      if (count < 0 && errno == EINTR) {
        continue;
      }
      if (count != 1 || bytes_left-- == 0) {
        throw std::runtime_error("hfrun --serve: the standard input does not describe a job");
      }
      if (letter == '\0') {
        return text;
      }
      text += letter;
    }
  };
  const auto number = [&] {
    const std::string text = next();
    int value = -1;
    std::from_chars(text.data(), text.data() + text.size(), value);
    if (value < 0) {
      throw std::runtime_error("hfrun --serve: \"" + text + "\" is no number");
    }
    return value;
  };
  if (next() != "hfrun2") {
    throw std::runtime_error("hfrun --serve: the job comes from another version of hfrun");
  }
  job_part part;
  part.host = next();
  part.directory = next();
  part.marker = next();
  part.first_rank = number();
  part.ranks = number();
  part.prefix = number() == 1;
  for (int count = number(); count > 0; --count) {
    part.ignored_signals.push_back(number());
  }
  for (auto* list : {&part.environment, &part.command}) {
    for (int count = number(); count > 0; --count) {
      list->push_back(next());
    }
  }
  return part;
}

}  // namespace hfrun
