// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/std_algorithm.hpp>

namespace hfcomm::rendezvous {

/// An owned file descriptor, above 2: where the process has closed its standard streams, the system gives their numbers
/// to new files, and what is printed would go into the group's memory.
class unique_fd {
 public:
  unique_fd() = default;
  /// Takes a descriptor. Replaces it by a duplicate where its number is 0, 1 or 2; is empty, with errno set, where
  /// there is none left for that.
  explicit unique_fd(int fd) noexcept : fd_(fd) {
    if (fd >= 0 && fd <= STDERR_FILENO) {
      fd_ = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
      const int problem = errno;
      ::close(fd);
      errno = problem;
    }
  }
  unique_fd(unique_fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  unique_fd& operator=(unique_fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~unique_fd() { close(); }

  void close() noexcept {
    if (fd_ >= 0) {
      ::close(std::exchange(fd_, -1));
    }
  }

  [[nodiscard]] int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

[[noreturn, gnu::cold]] inline void throw_system(const std::string& what, int code = errno) {
  detail::throw_error<engine_error>({what, ": ", std::strerror(code), " (errno ", code, ")"});
}

/// Memory that several ranks share. Between processes it is a memfd. A memfd has no name, so kill -9 of every rank
/// leaks nothing, and the size of /dev/shm does not bound it. Its pages exist before it is used, so there is no SIGBUS.
/// Its size is sealed, so no peer can shrink it. Between threads it is an anonymous mapping.
///
/// Behind it there may be room: addresses without pages, which `commit` gives them later. The room is as large as was
/// asked for, or smaller, or missing: see `size`. Rooms become smaller the more of them a process has, and all together
/// take an eighth of its addresses.
class shared_segment {
 public:
  /// Makes an anonymous segment, for ranks that are threads of this process.
  static std::shared_ptr<shared_segment> anonymous(std::size_t bytes, std::size_t room = 0) {
    room = std::min(room, std::size_t{4} << 30);  // sanitizers leave less address space
    return map(unique_fd(), bytes, bytes + room);
  }

  /// Makes a sealed memfd. Throws engine_error where the machine has no memory for it.
  [[gnu::cold]] static std::shared_ptr<shared_segment> create(std::size_t bytes, std::size_t room = 0) {
    unique_fd fd(::memfd_create("hfcomm", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd) {
      throw_system("memfd_create");
    }
    if (bytes > most_bytes()) {  // the system would send SIGXFSZ
      throw_system(detail::concat({"reserving ", bytes, " bytes of shared memory, more than ulimit -f allows"}), EFBIG);
    }
    // Not ftruncate: where memory is short, this fails here, and not later with SIGBUS.
    if (const int code = allocate_pages(fd.get(), 0, bytes); code != 0) {
      throw_system(detail::concat({"reserving ", bytes, " bytes of shared memory"}), code);
    }
    room = std::min(room, most_room(bytes));
    if (room != 0 && ::ftruncate(fd.get(), static_cast<off_t>(bytes + room)) != 0) {
      room = 0;
    }
    if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
      throw_system("sealing shared memory");
    }
    return map(std::move(fd), bytes, bytes + room);
  }

  /// Maps a segment that a peer handed over, of at least `bytes` beside the room. Throws engine_error where it is
  /// smaller, or where the peer could still shrink it.
  static std::shared_ptr<shared_segment> adopt(unique_fd fd, std::size_t bytes) {
    const int seals = ::fcntl(fd.get(), F_GET_SEALS);
    if (seals < 0 || (seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW)) {
      detail::throw_error<engine_error>({"a peer handed over memory that is not sealed"});
    }
    struct stat info{};
    if (::fstat(fd.get(), &info) != 0 || info.st_size <= 0 || static_cast<std::size_t>(info.st_size) < bytes) {
      detail::throw_error<engine_error>({"a peer handed over memory that is too small"});
    }
    return map(std::move(fd), bytes, static_cast<std::size_t>(info.st_size));
  }

  shared_segment(const shared_segment&) = delete;
  shared_segment& operator=(const shared_segment&) = delete;
  ~shared_segment() {
    ::munmap(data_, bytes_);
    rooms() -= room_;
  }

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  /// Returns the size with the room.
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }

  /// Gives pages of zeros to a part of the room, in whole pages. Returns false where there is no memory for them.
  [[nodiscard]] bool commit(std::size_t offset, std::size_t bytes) const noexcept {
    if (fd() >= 0 && allocate_pages(fd(), offset, bytes) != 0) {
      return false;
    }
    // Page faults happen here. An older kernel does not know the call and faults later.
    return ::madvise(data_ + offset, bytes, populate_write) == 0 || errno == EINVAL;
  }
  /// Gives a part of the room back to the system; it reads as zeros then. Returns false where the system refuses, as
  /// for locked pages.
  [[nodiscard]] bool release(std::size_t offset, std::size_t bytes) const noexcept {
    return ::madvise(data_ + offset, bytes, MADV_REMOVE) == 0;
  }
  static constexpr int populate_write = 23;  // MADV_POPULATE_WRITE, Linux 5.14; older C libraries do not name it
  /// Returns the memfd; -1 for an anonymous segment.
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

 private:
  shared_segment(unique_fd fd, std::byte* data, std::size_t bytes, std::size_t room)
      : fd_(std::move(fd)), data_(data), bytes_(bytes), room_(room) {
    rooms() += room_;
  }

  /// Returns the bytes of all rooms of this process.
  HFCOMM_PROCESS_STATE static std::atomic<std::size_t>& rooms() noexcept {
    static std::atomic<std::size_t> bytes{0};
    return bytes;
  }

  /// Gives pages to a part of a memfd; returns 0 or an errno. Kernels before 6.9 give up, and take the pages back, when
  /// any signal comes. So this asks for a piece at a time, which is soon done, and asks again.
  static int allocate_pages(int fd, std::size_t offset, std::size_t bytes) noexcept {
    constexpr std::size_t piece = std::size_t{2} << 20;
    for (const std::size_t end = offset + bytes; offset < end;) {
      const std::size_t next = std::min(end, (offset / piece + 1) * piece);
      const int code = ::posix_fallocate(fd, static_cast<off_t>(offset), static_cast<off_t>(next - offset));
      if (code != 0 && code != EINTR) {
        return code;
      }
      offset = code == 0 ? next : offset;
    }
    return 0;
  }

  /// Returns the size that this process's files may have.
  static std::size_t most_bytes() noexcept {
    rlimit file{};
    return ::getrlimit(RLIMIT_FSIZE, &file) != 0 || file.rlim_cur == RLIM_INFINITY
               ? SIZE_MAX
               : static_cast<std::size_t>(file.rlim_cur);
  }

  /// Returns the room that this process's limits and its other rooms allow. Ranks that were started together have the
  /// same limits.
  static std::size_t most_room(std::size_t bytes) noexcept {
    constexpr std::size_t most_rooms = std::size_t{16} << 40;
    const std::size_t left = most_rooms - std::min(rooms().load(), most_rooms);
    rlimit addresses{};
    if (::getrlimit(RLIMIT_AS, &addresses) != 0) {
      return 0;
    }
    return std::min({left / 8 / 4096 * 4096, most_bytes() - bytes,
                     addresses.rlim_cur == RLIM_INFINITY ? SIZE_MAX : std::size_t{addresses.rlim_cur} / 4});
  }

  /// Maps the segment, without the room where there are no addresses for it.
  static std::shared_ptr<shared_segment> map(unique_fd fd, std::size_t bytes, std::size_t with_room) {
    const int flags = MAP_SHARED | MAP_NORESERVE | (fd ? 0 : MAP_ANONYMOUS);
    // After mlockall(MCL_FUTURE) the system gives pages to all that is mapped, unless it can be neither read nor
    // written. The room is made accessible once it is unlocked.
    void* data = ::mmap(nullptr, with_room, PROT_NONE, flags, fd.get(), 0);
    if (data != MAP_FAILED) {
      ::munlock(static_cast<std::byte*>(data) + bytes, with_room - bytes);
      if (::mprotect(data, with_room, PROT_READ | PROT_WRITE) != 0) {
        ::munmap(data, with_room);
        data = MAP_FAILED;
      }
    }
    if (data == MAP_FAILED && with_room > bytes) {
      with_room = bytes;
      data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd.get(), 0);
    }
    if (data == MAP_FAILED) {
      throw_system(detail::concat({"mapping ", bytes, " bytes of shared memory"}));
    }
    auto* const begin = static_cast<std::byte*>(data);
    if (with_room > bytes) {
      ::madvise(begin + bytes, with_room - bytes, MADV_DONTDUMP);  // a core file would be as large
      ::madvise(begin + bytes, with_room - bytes, MADV_HUGEPAGE);  // where the system has them for shared memory
    }
    return std::shared_ptr<shared_segment>(new shared_segment(std::move(fd), begin, with_room, with_room - bytes));
  }

  unique_fd fd_;
  std::byte* data_;
  std::size_t bytes_;
  std::size_t room_;
};

}  // namespace hfcomm::rendezvous
