// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <hfcomm/core/detail/concat.hpp>

namespace hfcomm::rendezvous {

/// State of a process as /proc shows it. A process that is killed frees its memory first, which takes 0.1 s for each
/// GiB, and one that crashes writes its core file first. Only then do its file locks, its pidfd and waitpid tell that
/// it ended.
enum class process_state {
  running,
  unknown,       ///< /proc does not tell.
  ending,        ///< It runs no more code of its own; the kernel frees its memory.
  dumping_core,  ///< It has crashed, and the kernel writes its core file, if it may.
  ended,         ///< It is gone.
};

namespace proc {

/// Returns the beginning of a file; empty where it cannot be read.
inline std::string read_beginning(const std::string& path) {
  std::array<char, 1024> text{};
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    return {};
  }
  const ::ssize_t count = ::read(file, text.data(), text.size());
  ::close(file);
  return {text.data(), static_cast<std::size_t>(count > 0 ? count : 0)};
}

/// Returns what follows the name in the `stat` of a process or thread, from field 3 on; null where there is none. The
/// name may have spaces and parentheses.
inline const char* after_name(const std::string& stat) {
  const auto end = stat.rfind(')');
  return end != std::string::npos ? stat.c_str() + end + 1 : nullptr;
}

/// Returns the state of one thread from its `stat`: its fields 3 (state) and 9 (flags of the kernel).
inline process_state thread_state(const std::string& stat) {
  constexpr unsigned long exiting = 0x4;    // PF_EXITING
  constexpr unsigned long dumped = 0x8;     // PF_POSTCOREDUMP: ends, or waits while another thread writes the core file
  constexpr unsigned long dumping = 0x200;  // PF_DUMPCORE
  const char* const fields = after_name(stat);
  char state = 0;
  unsigned long flags = 0;
  if (fields == nullptr || std::sscanf(fields, " %c %*d %*d %*d %*d %*d %lu", &state, &flags) != 2) {
    return process_state::unknown;
  }
  if ((flags & (exiting | dumped | dumping)) == 0 && state != 'Z' && state != 'X') {
    return process_state::running;
  }
  return (flags & dumping) != 0 && (flags & exiting) == 0 ? process_state::dumping_core : process_state::ending;
}

/// Returns whether /proc shows the processes by the numbers that this process knows.
inline bool proc_shows_this_namespace() {
  static const bool fits = [] {
    std::array<char, 32> own{};
    return ::readlink("/proc/self", own.data(), own.size() - 1) > 0 && std::atol(own.data()) == ::getpid();
  }();
  return fits;
}

}  // namespace proc

/// Returns the state of the process with that number. It ends when all of its threads do: the first thread may end
/// alone, by pthread_exit in main. Takes 10 microseconds for a process that runs.
[[gnu::cold]] inline process_state state_of_process(pid_t pid) {
  const std::string folder = detail::concat({"/proc/", pid});
  const process_state first = proc::thread_state(proc::read_beginning(detail::concat({folder, "/stat"})));
  if (first == process_state::running || !proc::proc_shows_this_namespace()) {
    return first == process_state::running ? first : process_state::unknown;
  }
  if (first == process_state::unknown) {
    // /proc may hide a process that lives.
    return ::kill(pid, 0) != 0 && errno == ESRCH ? process_state::ended : process_state::unknown;
  }
  process_state result = first;
  DIR* const threads = ::opendir(detail::concat({folder, "/task"}).c_str());
  if (threads == nullptr) {
    return result;
  }
  while (const dirent* thread = ::readdir(threads)) {
    if (thread->d_name[0] == '.') {
      continue;
    }
    const auto one =
        proc::thread_state(proc::read_beginning(detail::concat({folder, "/task/", thread->d_name, "/stat"})));
    if (one == process_state::running) {
      result = one;
      break;
    }
    result = one == process_state::dumping_core ? one : result;
  }
  ::closedir(threads);
  return result;
}

/// A process as /proc tells of it.
struct process_description {
  std::string name;              ///< At most 15 characters of it.
  pid_t parent = 0;              ///< 0 where there is none, or nothing is known.
  unsigned long long start = 0;  ///< The time of its start, in ticks since that of the machine.
};

/// Returns what /proc tells of the process with that number.
[[gnu::cold]] inline process_description describe_process(pid_t pid) {
  const std::string stat = proc::read_beginning(detail::concat({"/proc/", pid, "/stat"}));
  process_description result;
  const auto begin = stat.find('(');
  if (const char* const fields = proc::after_name(stat); fields != nullptr && begin != std::string::npos) {
    result.name = stat.substr(begin + 1, stat.rfind(')') - begin - 1);
    std::sscanf(fields, " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                &result.parent, &result.start);
  }
  return result;
}

}  // namespace hfcomm::rendezvous
