// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/machine/random_id.hpp>

namespace hfcomm::detail {

/// An open file or directory.
class open_file {
 public:
  explicit open_file(int fd = -1) noexcept : fd_(fd) {}
  open_file(open_file&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  open_file& operator=(open_file&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~open_file() { (void)close(); }

  [[nodiscard]] int fd() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  /// Closes it. Returns whether all written bytes have been stored.
  [[nodiscard]] bool close() noexcept {
    const int fd = std::exchange(fd_, -1);
    return fd < 0 || ::close(fd) == 0;
  }

 private:
  int fd_;
};

/// A new directory that only this user may enter, with one file of each rank. The rank that made it and the ranks that
/// opened it all remove it with its files in their destructor, unless they `keep` it. Files are opened through the
/// directory's descriptor and links are not followed. So another user who may write to the parent directory cannot
/// redirect the access.
///
/// Throws std::runtime_error with the reason, without rank and call site.
class results_directory {
 public:
  /// Makes one in `parent`, under a random name.
  static results_directory make(const std::filesystem::path& parent, int ranks) {
    std::string name = concat({prefix, rendezvous::random_id()});
    const auto path = parent / name;
    if (::mkdir(path.c_str(), S_IRWXU) != 0) {
      fail(concat({"cannot make a directory in ", parent.string()}));
    }
    try {
      return results_directory(parent, std::move(name), ranks);
    } catch (...) {
      ::rmdir(path.c_str());
      throw;
    }
  }
  /// Opens the directory that another rank made.
  static results_directory open(const std::filesystem::path& parent, std::string name, int ranks) {
    if (name.rfind(prefix, 0) != 0 || name.find('/') != std::string::npos) {
      throw std::runtime_error(concat({"the root's directory cannot be called \"", name, '"'}));
    }
    return results_directory(parent, std::move(name), ranks);
  }
  results_directory(results_directory&&) = default;
  results_directory& operator=(results_directory&&) = delete;
  ~results_directory() { remove(); }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  /// Leaves the removal to another rank.
  void keep() noexcept { (void)directory_.close(); }

  void write(int rank, std::span<const std::byte> bytes) const {
    const std::string file_name = file_of(rank);
    open_file file(::openat(directory_.fd(), file_name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                            S_IRUSR | S_IWUSR));
    if (!file) {
      fail(concat({"cannot make ", (path_ / file_name).string()}));
    }
    while (!bytes.empty()) {
      const ::ssize_t count = ::write(file.fd(), bytes.data(), bytes.size());
      if (count < 0 && errno != EINTR) {
        fail(concat({"cannot write to ", (path_ / file_name).string()}));
      }
      bytes = bytes.subspan(static_cast<std::size_t>(count < 0 ? 0 : count));
    }
    if (!file.close()) {
      fail(concat({"cannot write to ", (path_ / file_name).string()}));
    }
  }

  [[nodiscard]] std::vector<std::byte> read(int rank) const {
    const std::string file_name = file_of(rank);
    const open_file file(::openat(directory_.fd(), file_name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct ::stat state{};
    if (!file || ::fstat(file.fd(), &state) != 0) {
      fail(concat({"cannot open ", (path_ / file_name).string()}));
    }
    if (!S_ISREG(state.st_mode)) {
      throw std::runtime_error(concat({(path_ / file_name).string(), " is not a regular file"}));
    }
    std::vector<std::byte> bytes(static_cast<std::size_t>(state.st_size));
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ::ssize_t count = ::read(file.fd(), bytes.data() + done, bytes.size() - done);
      if (count == 0 || (count < 0 && errno != EINTR)) {
        fail(concat({"cannot read all of ", (path_ / file_name).string()}));
      }
      done += static_cast<std::size_t>(count < 0 ? 0 : count);
    }
    return bytes;
  }

  /// Removes the files and the directory. Files that are missing are no error.
  void remove() noexcept {
    if (!directory_) {
      return;
    }
    for (int rank = 0; rank < ranks_; ++rank) {
      std::array<char, 32> file_name{};
      std::snprintf(file_name.data(), file_name.size(), "rank-%d", rank);
      ::unlinkat(directory_.fd(), file_name.data(), 0);
    }
    (void)directory_.close();
    ::rmdir(path_.c_str());
  }

 private:
  static constexpr std::string_view prefix = "hfcomm-results-";

  results_directory(const std::filesystem::path& parent, std::string name, int ranks)
      : path_(parent / name), name_(std::move(name)), ranks_(ranks) {
    directory_ = open_file(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct ::stat state{};
    if (!directory_ || ::fstat(directory_.fd(), &state) != 0) {
      (void)directory_.close();
      fail(concat({"cannot open ", path_.string(), " (do all ranks see the same ", parent.string(), "?)"}));
    }
    if (state.st_uid != ::geteuid() || (state.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
      (void)directory_.close();
      throw std::runtime_error(concat({path_.string(), " can be read or written by other users, or belongs to one"}));
    }
  }

  static std::string file_of(int rank) { return concat({"rank-", rank}); }

  [[noreturn]] static void fail(const std::string& what) {
    const int reason = errno;
    throw std::runtime_error(concat({what, ": ", std::strerror(reason)}));
  }

  std::filesystem::path path_;
  std::string name_;
  int ranks_;
  open_file directory_;
};

}  // namespace hfcomm::detail
