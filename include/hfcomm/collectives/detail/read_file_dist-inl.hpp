// SPDX-License-Identifier: MIT
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <vector>

#include <sys/stat.h>

#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/collectives/read_file_dist.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/std_algorithm.hpp>

namespace hfcomm {

namespace detail {

/// A file that rank 0 reads in pieces, to its end. Its size need not be known (a pipe, a file in /proc).
class file_source {
 public:
  /// Returns an empty text, or why the file cannot be opened.
  std::string open(const file_path& path) {
    struct ::stat state{};
    if (::stat(path.c_str(), &state) == 0 && S_ISDIR(state.st_mode)) {
      return detail::concat({"cannot read ", path.string(), ": it is a directory"});
    }
    path_ = path.string();
    file_.reset(std::fopen(path.c_str(), "rb"));
    if (!file_) {
      return detail::concat({"cannot open ", path_, ": ", std::strerror(errno)});
    }
    // One byte more than the file has, so that the first short read is the last. Where the size is not known, pieces of
    // 1 MiB.
    const bool has_size = ::fstat(::fileno(file_.get()), &state) == 0 && S_ISREG(state.st_mode) && state.st_size > 0;
    piece_bytes_ =
        has_size ? std::min(static_cast<std::size_t>(state.st_size) + 1, max_piece_bytes) : unknown_size_bytes;
    return {};
  }
  /// Fills `piece` with the next bytes, none at the end. Returns an empty text, or why it cannot be read.
  std::string read(std::vector<std::byte>& piece) {
    piece.resize(piece_bytes_);
    errno = 0;
    piece.resize(std::fread(piece.data(), 1, piece.size(), file_.get()));
    return std::ferror(file_.get()) == 0 ? std::string()
                                         : detail::concat({"cannot read on in ", path_, ": ", std::strerror(errno)});
  }

 private:
  struct closer {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  static constexpr std::size_t max_piece_bytes = 16 << 20;
  static constexpr std::size_t unknown_size_bytes = 1 << 20;

  std::string path_;
  std::unique_ptr<std::FILE, closer> file_;
  std::size_t piece_bytes_ = 0;
};

/// A receiver that passes pieces to the user's function. It keeps an exception of that function and does not call it
/// again, because every rank must finish the operation of the current piece.
class piece_receiver final : public receiver {
 public:
  using piece_sink = function_ref<void(std::span<const std::byte>)>;

  explicit piece_receiver(piece_sink sink) : sink_(sink) {}

  void receive(int /*source*/, std::span<const std::byte> chunk, std::uint64_t offset, std::uint64_t total) override {
    if (offset == 0) {
      piece_ = total;
      bytes_ += total;
    }
    if (chunk.empty() || problem_) {
      return;
    }
    try {
      sink_(chunk);
    } catch (...) {
      problem_ = std::current_exception();
      text_ = current_exception_detail();
    }
  }
  [[nodiscard]] const std::exception_ptr& problem() const noexcept { return problem_; }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  /// The size of the last piece.
  [[nodiscard]] std::uint64_t piece() const noexcept { return piece_; }
  /// The size of all pieces.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  piece_sink sink_;
  std::exception_ptr problem_;
  std::string text_;
  std::uint64_t piece_ = 0;
  std::uint64_t bytes_ = 0;
};

// There is one operation for each piece, the last of which is empty. A rank whose sink failed reports that in the next
// operation.
HFCOMM_INLINE std::uint64_t distribute_file(const file_path& path, function_ref<void(std::span<const std::byte>)> sink,
                                            const process_group& group, std::source_location where) {
  const bool reads = group.rank() == 0;
  file_source file;
  std::vector<std::byte> piece;
  piece_receiver received(sink);
  for (bool first = true;; first = false) {
    operation call = object_call<std::string>("read_file_dist", movement::from_root, 0, where);
    running_call running(group, call);
    if (received.problem()) {
      running.announce_failure(received.text());
      std::rethrow_exception(received.problem());
    }
    if (reads) {
      std::string problem;
      try {
        problem = first ? file.open(path) : std::string();
        problem = problem.empty() ? file.read(piece) : problem;
      } catch (const std::bad_alloc&) {
        problem = detail::concat({"no memory to read ", path.string()});
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

HFCOMM_INLINE std::string read_file_dist(const file_path& path, const process_group& group,
                                         std::source_location where) {
  std::string text;
  const auto append = [&](std::span<const std::byte> piece) {
    const auto fail_for_memory = [&] {
      std::string().swap(text);  // the error's text needs some memory
      detail::throw_error<usage_error>({group.rank(), group.size(), "read_file_dist", 0, where},
                                       {"no memory for the contents of ", path.string()});
    };
    try {
      text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    } catch (const std::bad_alloc&) {
      fail_for_memory();
    } catch (const std::length_error&) {
      fail_for_memory();
    }
  };
  detail::distribute_file(path, append, group, where);
  return text;
}

HFCOMM_INLINE work<std::string> read_file_dist_async(file_path path, const process_group& group,
                                                     std::source_location where) {
  const auto run = [](const file_path& its_path, const process_group& its_group, std::source_location at) {
    return read_file_dist(its_path, its_group, at);
  };
  return detail::start("read_file_dist", run, group, where, std::move(path));
}

}  // namespace hfcomm
