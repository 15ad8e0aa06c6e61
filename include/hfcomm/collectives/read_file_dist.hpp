// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>
#include <source_location>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <hfcomm/collectives/call.hpp>

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
    return std::ferror(file_.get()) == 0 ? std::string() : std::string("cannot read on: ") + std::strerror(errno);
  }

 private:
  struct closer {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  static constexpr std::uintmax_t max_piece_bytes = 16 << 20;

  std::unique_ptr<std::FILE, closer> file_;
  std::size_t piece_bytes_ = 0;
};

}  // namespace detail

/// The bytes of a file on every rank, read once: the group's rank 0 reads it, in pieces that are sent while it goes on
/// (only rank 0 needs to see the file, and any size works). Where it cannot be opened or read, rank 0 throws
/// usage_error and every other rank peer_error with the same text. (TRELLIS' `read_file_dist`.)
[[nodiscard]] inline std::string read_file_dist(const std::filesystem::path& path, const process_group& group = world(),
                                                std::source_location where = std::source_location::current()) {
  const bool reads = group.rank() == 0;
  detail::file_source file;
  std::vector<std::byte> piece;
  std::string text;

  // Appends each piece; a rank that runs out of memory says so in the next step, of which there always is one.
  struct appender final : receiver {
    explicit appender(std::string& to) : text(to) {}
    void receive(int /*source*/, std::span<const std::byte> chunk, std::uint64_t offset, std::uint64_t total) override {
      if (offset == 0) {
        piece = total;
      }
      text.append(reinterpret_cast<const char*>(chunk.data()), chunk.size());
    }
    std::string& text;
    std::uint64_t piece = 0;
  } received(text);

  std::string problem;
  for (bool first = true;; first = false) {
    operation call = detail::object_call<std::string>("read_file_dist", movement::from_root, 0, where);
    detail::running_call running(group, call);
    if (reads && problem.empty()) {  // what went wrong in the piece before must not be forgotten
      try {
        problem = first ? file.open(path) : std::string();
        problem = problem.empty() ? file.read(piece) : problem;
      } catch (const std::bad_alloc&) {
        problem = "no memory to read " + path.string();
      }
    }
    running.require(problem.empty(), [&] { return problem; });
    call.bytes = piece.size();
    try {
      if (reads) {
        received.receive(0, piece, 0, piece.size());
      }
      running.engine().exchange(call, piece, received);
    } catch (const std::bad_alloc&) {
      problem = "no memory for the contents of " + path.string();
    } catch (const std::length_error&) {
      problem = "no memory for the contents of " + path.string();
    }
    if (problem.empty() && received.piece == 0) {
      return text;
    }
  }
}

}  // namespace hfcomm
