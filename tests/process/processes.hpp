// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <hfcomm/comm.hpp>

/// Ranks as processes for tests, without launch(), so that a test sees how each one ends.
namespace processes {

using clock = std::chrono::steady_clock;

/// How one process ended, and what it wrote with `report`.
struct outcome {
  int wait_status = 0;
  std::string output;
  clock::time_point ended;

  [[nodiscard]] bool exited_with(int status) const {
    return WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == status;
  }
  [[nodiscard]] bool killed_by(int signal) const { return WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == signal; }
};

inline int& report_pipe() {
  static int fd = -1;
  return fd;
}

/// Adds a line to the output of this child process.
inline void report(const std::string& text) {
  const std::string line = text + '\n';
  [[maybe_unused]] const auto written = ::write(report_pipe(), line.data(), line.size());
}

/// Returns how often a text contains another.
inline int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

/// Children that run `body(index)`; an exception is reported and ends the child with status 1.
class child_processes {
 public:
  child_processes(int count, const std::function<void(int)>& body) {
    std::fflush(nullptr);
    for (int index = 0; index < count; ++index) {
      int ends[2];
      if (::pipe2(ends, O_CLOEXEC) != 0) {
        std::abort();
      }
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (const auto& other : children_) {
          ::close(other.pipe);
        }
        ::close(ends[0]);
        report_pipe() = ends[1];
        int status = 0;
        try {
          body(index);
        } catch (const std::exception& problem) {
          report(problem.what());
          status = 1;
        }
        std::fflush(nullptr);
        ::_exit(status);
      }
      ::close(ends[1]);
      children_.push_back({pid, ends[0]});
    }
  }
  child_processes(const child_processes&) = delete;
  child_processes& operator=(const child_processes&) = delete;
  ~child_processes() {
    for (auto& one : children_) {
      if (one.alive) {
        ::kill(one.pid, SIGKILL);
        ::waitpid(one.pid, nullptr, 0);
      }
      ::close(one.pipe);
    }
  }

  void kill(int index, int signal) const { ::kill(children_[static_cast<std::size_t>(index)].pid, signal); }
  [[nodiscard]] pid_t pid(int index) const { return children_[static_cast<std::size_t>(index)].pid; }

  /// Waits for all children. Kills those that still run after `limit`; their output then ends with "HUNG".
  std::vector<outcome> wait(std::chrono::milliseconds limit) {
    std::vector<outcome> outcomes(children_.size());
    const auto deadline = clock::now() + limit;
    for (std::size_t left = children_.size(); left > 0;) {
      const bool late = clock::now() > deadline;
      for (std::size_t index = 0; index < children_.size(); ++index) {
        child& one = children_[index];
        if (!one.alive) {
          continue;
        }
        read_output(one);
        if (late) {
          ::kill(one.pid, SIGKILL);
        }
        if (::waitpid(one.pid, &outcomes[index].wait_status, late ? 0 : WNOHANG) == one.pid) {
          one.alive = false;
          --left;
          read_output(one);
          outcomes[index].ended = clock::now();
          outcomes[index].output = one.output + (late ? "HUNG\n" : "");
        }
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return outcomes;
  }

 private:
  struct child {
    pid_t pid;
    int pipe;
    bool alive = true;
    std::string output{};
  };

  static void read_output(child& one) {
    char piece[4096];
    pollfd event{one.pipe, POLLIN, 0};
    while (::poll(&event, 1, 0) == 1) {
      const auto count = ::read(one.pipe, piece, sizeof(piece));
      if (count <= 0) {
        return;
      }
      one.output.append(piece, static_cast<std::size_t>(count));
    }
  }

  std::vector<child> children_;
};

inline const pid_t test_run = ::getpid();

/// A name with the process id of the test run, the same in all its children.
inline std::string unique_name(const std::string& name) { return name + '-' + std::to_string(test_run); }

/// Options by which the children of one job find each other.
inline hfcomm::init_options job_options(const std::string& name, int rank, int world_size) {
  hfcomm::init_options options;
  options.init_method = "job://" + name;
  options.rank = rank;
  options.world_size = world_size;
  options.start_timeout = std::chrono::seconds(30);
  options.timeout = std::chrono::seconds(60);
  return options;
}

/// Resources that must not leak: files of shared memory, hfcomm's sockets, file descriptors of this process.
struct leftovers {
  std::set<std::string> shared_memory_files;
  int sockets = 0;
  int descriptors = 0;

  static leftovers count() {
    leftovers found;
    found.shared_memory_files = entries("/dev/shm");
    found.descriptors = static_cast<int>(entries("/proc/self/fd").size());
    std::ifstream sockets("/proc/net/unix");
    for (std::string line; std::getline(sockets, line);) {
      found.sockets += line.find("@hfcomm-") != std::string::npos ? 1 : 0;
    }
    return found;
  }
  bool operator==(const leftovers&) const = default;

 private:
  static std::set<std::string> entries(const char* path) {
    std::set<std::string> names;
    if (DIR* directory = ::opendir(path); directory != nullptr) {
      while (const dirent* entry = ::readdir(directory)) {
        names.insert(entry->d_name);
      }
      ::closedir(directory);
    }
    return names;
  }
};

}  // namespace processes
