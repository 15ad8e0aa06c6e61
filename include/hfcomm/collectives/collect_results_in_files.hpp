// SPDX-License-Identifier: MIT
#pragma once

/// Opt-in: <hfcomm/comm.hpp> does not include it.

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <hfcomm/collectives/collect_results.hpp>
#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/file_path.hpp>
#include <hfcomm/core/function_ref.hpp>

namespace hfcomm {

namespace detail {

/// A rank's callbacks for the bytes in the files.
struct part_files {
  function_ref<void(std::vector<std::byte>& bytes)> encode_part;               ///< This rank's part.
  function_ref<void(int rank, std::span<const std::byte> bytes)> decode_part;  ///< Called on the root only.
  function_ref<void()> merge;                                                  ///< Called on the root, at the end.
};

/// Writes every rank's part to a file in a new directory and reads all of them on the root.
void exchange_files(running_call& running, const operation& call, const process_group& group,
                    const file_path& directory, const part_files& files);

template <class T>
std::vector<T> collect_in_files(operation&& call, std::vector<T>& part, std::size_t size, const file_path& directory,
                                const process_group& group) {
  running_call running(group, call);
  const auto context = running.context();
  cut_to_share(running, call, part, size, group);
  std::vector<std::vector<T>> parts(static_cast<std::size_t>(group.size()));
  std::vector<T> results;
  const auto encode_part = [&](std::vector<std::byte>& bytes) {
    encode(part, bytes);
    part = {};
  };
  const auto decode_part = [&](int rank, std::span<const std::byte> bytes) {
    decode_into(parts[static_cast<std::size_t>(rank)], bytes);
  };
  const auto merge = [&] { results = merge_parts(std::move(parts), size, {}, context); };
  exchange_files(running, call, group, directory, {encode_part, decode_part, merge});
  return results;
}

}  // namespace detail

/// Returns what `collect_results` returns, by way of files: each rank writes its part to a file, and the root reads
/// them one after the other. For results that are too large to hold several copies in memory. `directory` exists and is
/// the same one for all ranks (a shared file system, where they are on several machines); each rank may know it by
/// another path.
///
/// The root makes a directory with a random name in it, which only this user may enter. It is removed before the call
/// returns or throws. Where a rank was killed, the others remove it. It remains only where all ranks that know of it
/// were killed.
///
/// Collective. Throws as `collect_results` does. Where a rank cannot serialize, write or read, it throws usage_error
/// with the reason (or the exception of its serialization), and the others throw peer_error with the same text. Throws
/// decode_error on the root where a file is malformed. (MMEngine's `collect_results` with a `tmpdir`, which must be
/// unique and stays behind after an error.)
template <class T>
  requires serializable<std::vector<T>>
[[nodiscard]] std::vector<T> collect_results_in_files(std::vector<T> part, std::size_t size, const file_path& directory,
                                                      detail::optional_root root = 0, detail::or_group group = {},
                                                      call_site where = call_site::current()) {
  return detail::collect_in_files(
      detail::object_call<std::vector<T>>("collect_results_in_files", engines::movement::to_all, root, where), part,
      size, directory, root.in(group, where));
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_results<A...>()>>
detail::refused_result collect_results_in_files(A&&...) = delete;  // Why says the reason and what to do

/// Starts to collect results by way of files; the work's value is what `collect_results_in_files` returns.
template <class T>
  requires serializable<std::vector<T>>
work<std::vector<T>> collect_results_in_files_async(std::vector<T> part, std::size_t size, file_path directory,
                                                    detail::optional_root root = 0, detail::or_group group = {},
                                                    call_site where = call_site::current()) {
  return detail::start_on(
      detail::object_call<std::vector<T>>("collect_results_in_files", engines::movement::to_all, root, where),
      detail::check_root, detail::collect_in_files<T>, root.in(group, where), std::move(part), size,
      std::move(directory));
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_results<A...>()>>
detail::refused_result collect_results_in_files_async(A&&...) = delete;  // Why says the reason and what to do

}  // namespace hfcomm

#if !defined(HFCOMM_COMPILED)
#include <hfcomm/collectives/detail/collect_results_in_files-inl.hpp>
#include <hfcomm/impl.hpp>
#endif
