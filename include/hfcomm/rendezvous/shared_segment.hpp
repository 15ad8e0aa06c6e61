// SPDX-License-Identifier: MIT
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hfcomm/error.hpp>

namespace hfcomm::rendezvous {

/// An owned file descriptor.
class unique_fd {
 public:
  unique_fd() = default;
  explicit unique_fd(int fd) noexcept : fd_(fd) {}
  unique_fd(unique_fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  unique_fd& operator=(unique_fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~unique_fd() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }

  [[nodiscard]] int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

[[noreturn]] inline void throw_system(const std::string& what, int code = errno) {
  throw engine_error(error_context{}, what + ": " + std::strerror(code) + " (errno " + std::to_string(code) + ")");
}

/// Memory that several ranks see. Between processes it is a memfd: it has no name (kill -9 of every rank leaks
/// nothing), is not bounded by the size of /dev/shm, its pages exist before it is used (no SIGBUS), and its size is
/// sealed (no peer can shrink it under us). Between threads it is an anonymous mapping.
class shared_segment {
 public:
  /// For ranks that are threads of this process.
  static std::shared_ptr<shared_segment> anonymous(std::size_t bytes) {
    return std::shared_ptr<shared_segment>(new shared_segment(unique_fd(), map(-1, bytes), bytes));
  }

  /// A new sealed memfd. Throws engine_error where the machine has no memory for it.
  static std::shared_ptr<shared_segment> create(std::size_t bytes) {
    unique_fd fd(::memfd_create("hfcomm", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd) {
      throw_system("memfd_create");
    }
    // fallocate, not ftruncate: a machine short of memory says so here instead of killing a rank with SIGBUS later.
    if (const int code = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes)); code != 0) {
      throw_system("reserving " + std::to_string(bytes) + " bytes of shared memory", code);
    }
    if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
      throw_system("sealing shared memory");
    }
    std::byte* data = map(fd.get(), bytes);
    return std::shared_ptr<shared_segment>(new shared_segment(std::move(fd), data, bytes));
  }

  /// A segment that a peer handed over: refuses one that the peer could still shrink.
  static std::shared_ptr<shared_segment> adopt(unique_fd fd) {
    const int seals = ::fcntl(fd.get(), F_GET_SEALS);
    if (seals < 0 || (seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW)) {
      throw engine_error(error_context{}, "a peer handed over memory that is not sealed");
    }
    struct stat info{};
    if (::fstat(fd.get(), &info) != 0 || info.st_size <= 0) {
      throw engine_error(error_context{}, "a peer handed over memory of unknown size");
    }
    const auto bytes = static_cast<std::size_t>(info.st_size);
    std::byte* data = map(fd.get(), bytes);
    return std::shared_ptr<shared_segment>(new shared_segment(std::move(fd), data, bytes));
  }

  shared_segment(const shared_segment&) = delete;
  shared_segment& operator=(const shared_segment&) = delete;
  ~shared_segment() { ::munmap(data_, bytes_); }

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
  /// -1 for an anonymous segment.
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

 private:
  shared_segment(unique_fd fd, std::byte* data, std::size_t bytes) : fd_(std::move(fd)), data_(data), bytes_(bytes) {}

  static std::byte* map(int fd, std::size_t bytes) {
    const int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (data == MAP_FAILED) {
      throw_system("mapping " + std::to_string(bytes) + " bytes of shared memory");
    }
    return static_cast<std::byte*>(data);
  }

  unique_fd fd_;
  std::byte* data_;
  std::size_t bytes_;
};

}  // namespace hfcomm::rendezvous
