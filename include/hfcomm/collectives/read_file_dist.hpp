// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include <hfcomm/call/async.hpp>
#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/file_path.hpp>
#include <hfcomm/core/function_ref.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm {

namespace detail {

/// Reads a file on rank 0 and passes its pieces to `sink` on every rank. Returns the file's size.
std::uint64_t distribute_file(const file_path& path, function_ref<void(std::span<const std::byte>)> sink,
                              const process_group& group, call_site where);

}  // namespace detail

/// Returns the bytes of a file on every rank. Only the group's rank 0 reads the file, once. It sends pieces while it
/// continues to read, and any size works. `read_file_dist(path, local_group())` reads it once on each machine, where
/// each has its own.
///
/// Where the file cannot be opened or read, rank 0 throws usage_error and every other rank peer_error with the same
/// text. A rank that has no memory for the contents does likewise. The group stays usable. (TRELLIS' `read_file_dist`.)
[[nodiscard]] std::string read_file_dist(const file_path& path, const process_group& group = world(),
                                         call_site where = call_site::current());

/// Passes the bytes of a file to `sink(std::span<const std::byte>)` on every rank, in pieces and in order, and returns
/// its size in bytes. The file may be larger than the memory. It is read once, as above. The lengths of the pieces are
/// not specified and differ from rank to rank; none is empty. A piece is valid until `sink` returns.
///
/// Where `sink` throws on one rank, that rank throws the exception again. Every other rank throws peer_error with its
/// text, after a few more calls of its own sink. The group stays usable. The other ranks' next piece waits for the
/// slowest sink, up to the group's deadline. Inside `sink` no operations of the group may be called (usage_error).
template <std::invocable<std::span<const std::byte>> Sink>
std::uint64_t read_file_dist(const file_path& path, Sink&& sink, const process_group& group = world(),
                             call_site where = call_site::current()) {
  return detail::distribute_file(
      path, [&](std::span<const std::byte> piece) { (void)std::invoke(sink, piece); }, group, where);
}

/// Starts to read a file; the work's value is its contents.
work<std::string> read_file_dist_async(file_path path, const process_group& group = world(),
                                       call_site where = call_site::current());

/// Starts to read a file; `sink` gets its pieces on another thread. The work's value is the file's size.
template <std::invocable<std::span<const std::byte>> Sink>
work<std::uint64_t> read_file_dist_async(file_path path, Sink sink, const process_group& group = world(),
                                         call_site where = call_site::current()) {
  const auto run = [](const file_path& its_path, Sink&& own, const process_group& its_group, call_site at) {
    return read_file_dist(its_path, std::move(own), its_group, at);
  };
  return detail::start("read_file_dist", run, group, where, std::move(path), std::move(sink));
}

}  // namespace hfcomm
