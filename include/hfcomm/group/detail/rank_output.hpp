// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/group/launch.hpp>
#include <hfcomm/machine/shared_segment.hpp>

namespace hfcomm::detail {

/// The standard output and error streams of the ranks that launch() forks, as its options say.
class rank_output {
 public:
  explicit rank_output(const launch_options& options) : options_(options) {
    if (has_prefix()) {
      streams_.reserve(2 * static_cast<std::size_t>(options_.processes));
    }
  }

  /// Makes what the next rank needs. To be called before its fork; throws engine_error.
  [[gnu::cold]] void prepare(std::size_t rank) {
    if (!options_.output_directory.empty()) {
      (void)::mkdir(options_.output_directory.c_str(), 0777);  // where it fails, so does opening the file
      const std::string path = concat({options_.output_directory, "/rank-", rank, ".log"});
      file_ = rendezvous::unique_fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
      if (!file_) {
        rendezvous::throw_system(concat({"opening ", path, " for the output of a rank"}));
      }
    } else if (has_prefix()) {
      for (std::FILE* const target : {stdout, stderr}) {
        std::array<int, 2> ends{};
        if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
          rendezvous::throw_system(concat({"making a pipe for the output of rank ", rank}));
        }
        rendezvous::unique_fd reading(ends[0]);
        rendezvous::unique_fd& writing = target == stdout ? out_ : err_;
        writing = rendezvous::unique_fd(ends[1]);
        // The first rank of this process may be any of the job's.
        streams_.push_back({std::move(reading), target, concat({"[rank ", rank, "] "}), {}});
      }
    }
  }

  /// Redirects this process's streams, in the rank that prepare() was called for.
  void redirect() {
    const bool to_file = static_cast<bool>(file_);
    if (to_file || out_) {
      ::dup2(to_file ? file_.get() : out_.get(), STDOUT_FILENO);
      ::dup2(to_file ? file_.get() : err_.get(), STDERR_FILENO);
      std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // whole lines, as on a terminal
    }
    forget();
    streams_.clear();
  }

  /// Closes what only the rank needs, in the process that has forked it.
  void forget() noexcept {
    file_.close();
    out_.close();
    err_.close();
  }

  /// Prints the whole lines that have come, and waits up to `limit` for the first.
  [[gnu::cold]] void forward(std::chrono::milliseconds limit) {
    plain_list<pollfd> events;
    events.reserve(streams_.size());
    for (const stream& one : streams_) {
      events.push_back({one.reading.get(), POLLIN, 0});
    }
    if (::poll(events.data(), events.size(), static_cast<int>(limit.count())) <= 0) {
      return;
    }
    for (std::size_t index = 0; index < events.size(); ++index) {
      if (events[index].revents != 0 && !streams_[index].read()) {
        streams_[index].reading.close();
      }
    }
    flush();
  }

  /// Prints what is left when all ranks have ended.
  void finish() {
    for (stream& one : streams_) {
      pollfd event{one.reading.get(), POLLIN, 0};
      // A process that the rank has left behind may print for ever.
      for (int pieces = 0; pieces < 10'000 && one.reading && ::poll(&event, 1, 0) == 1 && one.read();) {
        ++pieces;
      }
      if (!one.line.empty()) {
        one.line += '\n';
        one.print_lines();
      }
    }
    flush();
  }

 private:
  struct stream {
    rendezvous::unique_fd reading;
    std::FILE* target = nullptr;
    std::string prefix;
    std::string line;  // without its end yet

    /// Reads once; returns false at the end of the stream.
    bool read() {
      std::array<char, 4096> piece{};
      const ::ssize_t count = ::read(reading.get(), piece.data(), piece.size());
      if (count <= 0) {
        return count < 0 && errno == EINTR;
      }
      line.append(piece.data(), static_cast<std::size_t>(count));
      print_lines();
      return true;
    }

    /// Prints whole lines. A line ends where the rank moves to its beginning again, too, and where it is very long.
    [[gnu::cold]] void print_lines() {
      std::size_t begin = 0;
      for (std::size_t end = 0; (end = line.find_first_of("\n\r", begin)) != std::string::npos; begin = end + 1) {
        print(line.substr(begin, end - begin) + line[end]);
      }
      line.erase(0, begin);
      if (line.size() > longest) {
        print(concat({std::exchange(line, {}), '\n'}));
      }
    }

    void print(const std::string& text) const {
      std::fwrite(prefix.data(), 1, prefix.size(), target);
      std::fwrite(text.data(), 1, text.size(), target);
    }

    static constexpr std::size_t longest = std::size_t{1} << 16;
  };

  [[nodiscard]] bool has_prefix() const noexcept { return options_.prefix_output && options_.output_directory.empty(); }

  static void flush() noexcept {
    std::fflush(stdout);
    std::fflush(stderr);
  }

  const launch_options& options_;
  rendezvous::unique_fd file_, out_, err_;  // of the rank that is being forked
  std::vector<stream> streams_;             // two for each rank, once it was forked
};

}  // namespace hfcomm::detail
