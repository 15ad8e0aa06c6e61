// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cerrno>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <source_location>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/call/async.hpp>

namespace hfcomm {

namespace detail {

/// A file that rank 0 reads piece by piece, to its end; its size need not be known (a pipe, a file in /proc).
class file_source {
 public:
  /// An empty text, or why the file cannot be opened.
  std::string open(const std::filesystem::path& path) {
    std::error_code problem;
    if (std::filesystem::is_directory(path, problem)) {
      return "cannot read " + path.string() + ": it is a directory";
    }
    path_ = path.string();
    file_.reset(std::fopen(path.c_str(), "rb"));
    if (!file_) {
      return "cannot open " + path.string() + ": " + std::strerror(errno);
    }
    // A byte more than there is, so that the first short read is the last; what tells no size is read in middling
    // pieces.
    const auto size = std::filesystem::file_size(path, problem);
    piece_bytes_ = problem || size == 0 ? std::size_t{1} << 20
                                        : static_cast<std::size_t>(std::min<std::uintmax_t>(size + 1, max_piece_bytes));
    return {};
  }
  /// Fills `piece` with what comes next, nothing at the end; an empty text, or why it cannot be read.
  std::string read(std::vector<std::byte>& piece) {
    piece.resize(piece_bytes_);
    errno = 0;
    piece.resize(std::fread(piece.data(), 1, piece.size(), file_.get()));
    return std::ferror(file_.get()) == 0 ? std::string() : "cannot read on in " + path_ + ": " + std::strerror(errno);
  }

 private:
  struct closer {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  static constexpr std::uintmax_t max_piece_bytes = 16 << 20;

  std::string path_;
  std::unique_ptr<std::FILE, closer> file_;
  std::size_t piece_bytes_ = 0;
};

/// Hands pieces on to the user's function. What it throws is kept, and it is not called again: the ranks must stay in
/// step while a piece is under way.
template <class Sink>
class piece_receiver final : public receiver {
 public:
  explicit piece_receiver(Sink& sink) : sink_(sink) {}

  void receive(int /*source*/, std::span<const std::byte> chunk, std::uint64_t offset, std::uint64_t total) override {
    if (offset == 0) {
      piece_ = total;
      bytes_ += total;
    }
    if (chunk.empty() || problem_) {
      return;
    }
    try {
      std::invoke(sink_, chunk);
    } catch (...) {
      keep(current_exception_detail());
    }
  }
  [[nodiscard]] const std::exception_ptr& problem() const noexcept { return problem_; }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  /// The size of the piece that came last.
  [[nodiscard]] std::uint64_t piece() const noexcept { return piece_; }
  /// The size of all pieces.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  void keep(std::string text) {
    problem_ = std::current_exception();
    text_ = std::move(text);
  }

  Sink& sink_;
  std::exception_ptr problem_;
  std::string text_;
  std::uint64_t piece_ = 0;
  std::uint64_t bytes_ = 0;
};

/// One operation for each piece, the last of them empty. A rank that could not take a piece says so in the next one, of
/// which there always is one.
template <class Sink>
std::uint64_t distribute_file(const std::filesystem::path& path, Sink& sink, const process_group& group,
                              std::source_location where) {
  const bool reads = group.rank() == 0;
  file_source file;
  std::vector<std::byte> piece;
  piece_receiver<Sink> received(sink);
  for (bool first = true;; first = false) {
    operation call = object_call<std::string>("read_file_dist", movement::from_root, 0, where);
    running_call running(group, call);
    if (received.problem()) {
      running.reject(received.text());
      std::rethrow_exception(received.problem());
    }
    if (reads) {
      std::string problem;
      try {
        problem = first ? file.open(path) : std::string();
        problem = problem.empty() ? file.read(piece) : problem;
      } catch (const std::bad_alloc&) {
        problem = "no memory to read " + path.string();
      }
      running.require(problem.empty(), [&] { return problem; });
      received.receive(0, piece, 0, piece.size());
    }
    call.bytes = piece.size();
    running.engine().exchange(call, piece, received);
    if (received.piece() == 0) {
      return received.bytes();
    }
  }
}

}  // namespace detail

/// The bytes of a file on every rank, read once: the group's rank 0 reads it, in pieces that are sent while it goes on
/// (only rank 0 needs to see the file, and any size works). `read_file_dist(path, local_group())` reads it once on each
/// machine, where each has its own.
///
/// Where it cannot be opened or read, rank 0 throws usage_error and every other rank peer_error with the same text; so
/// does a rank that has no memory for the contents. The group stays usable. (TRELLIS' `read_file_dist`.)
[[nodiscard]] inline std::string read_file_dist(const std::filesystem::path& path, const process_group& group = world(),
                                                std::source_location where = std::source_location::current()) {
  std::string text;
  const auto append = [&](std::span<const std::byte> piece) {
    const auto no_memory = [&] {
      std::string().swap(text);  // whoever reports this needs some
      throw usage_error({group.rank(), group.size(), "read_file_dist", 0, where},
                        "no memory for the contents of " + path.string());
    };
    try {
      text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    } catch (const std::bad_alloc&) {
      no_memory();
    } catch (const std::length_error&) {
      no_memory();
    }
  };
  detail::distribute_file(path, append, group, where);
  return text;
}

/// Hands the bytes of a file to `sink(std::span<const std::byte>)` on every rank, piece by piece and in order, so that
/// the file may be larger than the memory; returns its size in bytes. It is read once, as above. Where the pieces begin
/// and end is not specified, differs from rank to rank, and none is empty; each is gone when `sink` returns.
///
/// Where `sink` throws on one rank, that rank throws the exception on, every other rank throws peer_error with its
/// text, after a few more calls of its own sink, and the group stays usable. The other ranks' next piece waits for the
/// slowest sink, up to the group's deadline. Inside `sink` no operations of the group may be called (usage_error).
template <std::invocable<std::span<const std::byte>> Sink>
std::uint64_t read_file_dist(const std::filesystem::path& path, Sink&& sink, const process_group& group = world(),
                             std::source_location where = std::source_location::current()) {
  return detail::distribute_file(path, sink, group, where);
}

/// Starts to read a file; the work's value is its contents.
inline work<std::string> read_file_dist_async(std::filesystem::path path, const process_group& group = world(),
                                              std::source_location where = std::source_location::current()) {
  return detail::start("read_file_dist", group, where,
                       [path = std::move(path), group, where] { return read_file_dist(path, group, where); });
}

/// Starts to read a file; `sink` gets its pieces on another thread. The work's value is the file's size.
template <std::invocable<std::span<const std::byte>> Sink>
work<std::uint64_t> read_file_dist_async(std::filesystem::path path, Sink sink, const process_group& group = world(),
                                         std::source_location where = std::source_location::current()) {
  return detail::start("read_file_dist", group, where,
                       [path = std::move(path), sink = std::move(sink), group, where]() mutable {
                         return read_file_dist(path, sink, group, where);
                       });
}

}  // namespace hfcomm
