// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <source_location>
#include <span>
#include <string>

#include <hfcomm/collectives/call.hpp>

namespace hfcomm {

namespace detail {

/// A file that rank 0 reads piece by piece.
class file_source {
 public:
  /// An empty text, or why the file cannot be read.
  std::string open(const std::filesystem::path& path) {
    std::error_code problem;
    if (std::filesystem::is_directory(path, problem)) {
      return "cannot read " + path.string() + ": it is a directory";
    }
    file_.reset(std::fopen(path.c_str(), "rb"));
    if (!file_) {
      return "cannot open " + path.string() + ": " + std::strerror(errno);
    }
    size_ = std::filesystem::file_size(path, problem);
    return problem ? "cannot tell the size of " + path.string() + ": " + problem.message() : std::string();
  }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] bool read(std::span<char> piece) { return std::fread(piece.data(), 1, piece.size(), file_.get()) == piece.size(); }

 private:
  struct closer {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, closer> file_;
  std::uint64_t size_ = 0;
};

}  // namespace detail

/// The bytes of a file on every rank, read once: the group's rank 0 reads it, in pieces that are sent while it goes on
/// (only rank 0 needs to see the file, and any size works). Where it cannot be opened or read, rank 0 throws usage_error
/// and every other rank peer_error with the same text. (TRELLIS' `read_file_dist`.)
[[nodiscard]] inline std::string read_file_dist(const std::filesystem::path& path, const process_group& group = world(),
                                                std::source_location where = std::source_location::current()) {
  constexpr std::uint64_t piece_bytes = 16 << 20;
  const bool reads = group.rank() == 0;
  detail::file_source file;
  std::string text;
  std::uint64_t size = 0;
  {
    auto call = detail::buffer_call<std::uint64_t>("read_file_dist", movement::from_root, 1, 0, where);
    detail::running_call running(group, call);
    const std::string problem = reads ? file.open(path) : std::string();
    running.require(problem.empty(), [&] { return problem; });
    size = file.size();
    const auto store = [&](int, std::uint64_t&& told) { size = told; };
    detail::object_receiver<std::uint64_t, decltype(store)> received(running, store);
    running.engine().exchange(call, std::as_bytes(std::span(&size, 1)), received);
  }
  // resize() may fail for want of memory on one rank; the others learn of it from the piece that this rank then refuses.
  std::string shortage;
  try {
    text.resize(size);
  } catch (const std::exception&) {
    shortage = "no memory for the " + std::to_string(size) + " bytes of " + path.string();
  }
  for (std::uint64_t offset = 0; offset < size; offset += piece_bytes) {
    const std::uint64_t count = std::min(piece_bytes, size - offset);
    auto call = detail::buffer_call<char>("read_file_dist", movement::from_root, count, 0, where);
    detail::running_call running(group, call);
    running.require(shortage.empty(), [&] { return shortage; });
    const std::span<char> piece(text.data() + offset, count);
    running.require(!reads || file.read(piece), [&] { return path.string() + " became shorter or unreadable while it was read"; });
    detail::table_receiver received(std::as_writable_bytes(piece));
    running.engine().exchange(call, std::as_bytes(piece), received);
  }
  return text;
}

}  // namespace hfcomm
