// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

namespace hfrun {

/// How a rank failed, or a whole host where `rank` is -1.
struct failure {
  int rank = -1;
  std::string host{};
  int pid = 0;
  int status = 1;  ///< hfrun's own exit status for it.
  std::string how{};
  std::chrono::steady_clock::time_point at = std::chrono::steady_clock::now();
};

/// Returns the failure to blame: the first, unless a signal ended another rank at about the same time. Then the first
/// is likely a rank that has noticed the other's end.
inline const failure& first_of(const std::vector<failure>& failures) {
  for (const failure& one : failures) {
    if (one.status > 128 && one.at - failures.front().at < std::chrono::milliseconds(300)) {
      return one;
    }
  }
  return failures.front();
}

inline void print(const failure& one) {
  if (one.rank >= 0) {
    std::fprintf(stderr, "[hfrun] rank %d on %s (pid %d) %s\n", one.rank, one.host.c_str(), one.pid, one.how.c_str());
  } else {
    std::fprintf(stderr, "[hfrun] %s on %s\n", one.how.c_str(), one.host.c_str());
  }
}

/// The time that the other ranks get after a failure, to report what they have noticed.
inline constexpr auto grace = std::chrono::seconds(2);

}  // namespace hfrun
