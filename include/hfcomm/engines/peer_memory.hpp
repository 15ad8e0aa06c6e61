// SPDX-License-Identifier: MIT
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <random>
#include <span>
#include <string_view>

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
    std::random_device random;
    word_ = std::uint64_t{random()} << 32 | random();
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
      const char* choice = std::getenv("HFCOMM_SINGLE_COPY");
      reaches_all_ = choice == nullptr || std::string_view(choice) != "0";
      for (int other = 0; *reaches_all_ && other < memory_.sizes().ranks; ++other) {
        const layout::landmark& theirs = memory_.block(other).mark;
        std::uint64_t found = 0;
        *reaches_all_ =
            other == rank_ ||
            (read(other, theirs.address, std::as_writable_bytes(std::span(&found, 1))) == 0 && found == theirs.word);
      }
    }
    return *reaches_all_;
  }

  /// Fills `to` with what `rank` has from `address` on. Returns 0, or errno.
  [[nodiscard]] int read(int rank, std::uint64_t address, std::span<std::byte> to) const noexcept {
    while (!to.empty()) {  // at most 2 GiB at once
      iovec local{to.data(), to.size()};
      iovec remote{reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)), to.size()};
      const ssize_t count = ::process_vm_readv(memory_.block(rank).mark.pid, &local, 1, &remote, 1, 0);
      if (count < 0 && errno == EINTR) {
        continue;
      }
      if (count <= 0) {
        return count < 0 ? errno : EFAULT;
      }
      address += static_cast<std::uint64_t>(count);
      to = to.subspan(static_cast<std::size_t>(count));
    }
    return 0;
  }

 private:
  const group_memory& memory_;
  int rank_;
  std::uint64_t word_;
  std::optional<bool> reaches_all_;
};

}  // namespace hfcomm::engines
