// SPDX-License-Identifier: MIT
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <optional>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include <sys/uio.h>
#include <unistd.h>

#include <hfcomm/engines/group_memory.hpp>

namespace hfcomm::engines {

/// Reads the other ranks' own memory: one copy by the kernel instead of one into a slot and one out of it. Not every
/// system lets a process do that (Yama's ptrace_scope, a container's seccomp filter, different users), and a process id
/// may mean another process in another namespace. So each rank tells the others where a random word of its memory is;
/// who finds it there can read the rest, too. `HFCOMM_SINGLE_COPY=0` has a rank do without.
class peer_memory {
 public:
  peer_memory(const group_memory& memory, int rank) : memory_(memory), rank_(rank) {
    try {
      std::random_device random;
      word_ = std::uint64_t{random()} << 32 | random();
    } catch (const std::exception&) {
      return;  // without a landmark, nobody reads here
    }
    layout::landmark& mine = memory.block(rank).mark;
    mine.pid = static_cast<std::int32_t>(::getpid());
    mine.address = reinterpret_cast<std::uintptr_t>(&word_);
    mine.word = word_;
  }
  peer_memory(const peer_memory&) = delete;
  peer_memory& operator=(const peer_memory&) = delete;

  /// Whether this rank can read the memory of all others. To be asked once they all have taken a step.
  [[nodiscard]] bool reaches_all() {
    if (!reaches_all_) {
      reaches_all_ = try_all();
    }
    return *reaches_all_;
  }

  /// From here on, as if it could not: all ranks have seen that one of them cannot.
  void give_up() noexcept { reaches_all_ = false; }

  /// Fills `to` with what `rank` has from `address` on. False where not all of that can be read.
  [[nodiscard]] bool read(int rank, std::uint64_t address, std::span<std::byte> to) const noexcept {
    while (!to.empty()) {  // at most 2 GiB at once
      iovec local{to.data(), to.size()};
      // NOLINTNEXTLINE(performance-no-int-to-ptr): it is no pointer of this process
      iovec remote{reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)), to.size()};
      const ssize_t count = ::process_vm_readv(pids_[static_cast<std::size_t>(rank)], &local, 1, &remote, 1, 0);
      if (count < 0 && errno == EINTR) {
        continue;
      }
      if (count <= 0) {
        return false;
      }
      address += static_cast<std::uint64_t>(count);
      to = to.subspan(static_cast<std::size_t>(count));
    }
    return true;
  }

 private:
  [[nodiscard]] bool try_all() {
    if (const char* choice = std::getenv("HFCOMM_SINGLE_COPY"); choice != nullptr && std::string_view(choice) == "0") {
      return false;
    }
    for (int other = 0; other < memory_.sizes().ranks; ++other) {
      const layout::landmark theirs = memory_.block(other).mark;
      pids_.push_back(theirs.pid);
      std::uint64_t found = 0;
      if (other != rank_ &&
          (theirs.pid == 0 || found == theirs.word ||
           !read(other, theirs.address, std::as_writable_bytes(std::span(&found, 1))) || found != theirs.word)) {
        return false;
      }
    }
    return true;
  }

  const group_memory& memory_;
  int rank_;
  std::uint64_t word_ = 0;
  std::vector<pid_t> pids_;  // of all ranks, once they have been reached
  std::optional<bool> reaches_all_;
};

}  // namespace hfcomm::engines
