// SPDX-License-Identifier: MIT
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include <sys/uio.h>

#include <hfcomm/engine/shared_memory/memory/layout.hpp>

/// The private memory of other processes, which the kernel copies: one copy, instead of one into a slot and one out of
/// it. Not every system allows it (Yama's ptrace_scope, a container's seccomp filter, different users), and a process
/// id may mean another process in another namespace. So each rank publishes the address of a random word of its memory.
namespace hfcomm::engines {

/// Copies memory of the process of `owner` from `address` on into `to`. Returns false where not all of it can be read.
[[nodiscard]] inline bool read_process(const layout::memory_probe& owner, std::uint64_t address,
                                       std::span<std::byte> to) noexcept {
  while (!to.empty()) {  // the kernel copies at most 2 GiB at once
    iovec local{to.data(), to.size()};
    // NOLINTNEXTLINE(performance-no-int-to-ptr): not a pointer of this process
    iovec remote{reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)), to.size()};
    const ssize_t count = ::process_vm_readv(owner.pid, &local, 1, &remote, 1, 0);
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

/// Returns whether the owner's word is in its memory: what was read before was its.
[[nodiscard]] inline bool is_process_of(const layout::memory_probe& owner) noexcept {
  std::uint64_t found = 0;
  return read_process(owner, owner.address, std::as_writable_bytes(std::span(&found, 1))) && found == owner.word;
}

/// Returns whether the owner's memory can be read. Always false with `HFCOMM_SINGLE_COPY=0` in this process'
/// environment.
[[nodiscard]] inline bool can_read_process(const layout::memory_probe& owner) noexcept {
  const char* const choice = std::getenv("HFCOMM_SINGLE_COPY");
  return (choice == nullptr || std::string_view(choice) != "0") && owner.pid != 0 && owner.word != 0 &&
         is_process_of(owner);
}

}  // namespace hfcomm::engines
