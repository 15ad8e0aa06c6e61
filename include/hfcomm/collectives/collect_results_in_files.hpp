// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <exception>
#include <filesystem>
#include <optional>
#include <source_location>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/collectives/collect_results.hpp>
#include <hfcomm/collectives/detail/results_directory.hpp>

namespace hfcomm {

namespace detail {

/// Runs `work` on this rank and meets the others; returns what `work` returned on the root. Where it threw somewhere,
/// that rank throws the exception on and the others peer_error with its text: but only when all are through, so that
/// nobody is still at work in a directory that is about to be removed.
template <class Work>
std::string together(running_call& running, operation call, const process_group& group, Work work) {
  using outcome = std::pair<std::string, std::string>;  // why it failed, what it returned
  outcome mine;
  std::exception_ptr own;
  try {
    mine.second = work();
  } catch (...) {
    own = std::current_exception();
    const std::string text = current_exception_detail();
    mine.first = text.empty() ? "an exception" : text;
  }
  const auto context = running.context();
  std::vector<outcome> all(static_cast<std::size_t>(group.size()));
  const auto store = [&](int source, outcome&& received) {
    all[static_cast<std::size_t>(source)] = std::move(received);
  };
  object_receiver<outcome, decltype(store)> received(running, store);
  std::vector<std::byte> bytes;
  encode(mine, bytes);
  call.pattern = movement::to_all;
  call.bytes = bytes.size();
  running.engine().exchange(call, bytes, received);
  if (own) {
    std::rethrow_exception(own);
  }
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].first.empty()) {
      throw peer_error(context,
                       "rank " + std::to_string(rank) + " failed in " + call.name.text + ": " + all[rank].first,
                       static_cast<int>(rank), false);
    }
  }
  return all[static_cast<std::size_t>(call.root)].second;
}

}  // namespace detail

/// `collect_results` by way of files, for results that are too many to hold several copies of: each rank writes its
/// part to a file, the root reads them one after the other. `directory` exists and is the same one for all ranks (a
/// shared file system, where they are on several machines); each rank may know it by another path.
///
/// In it the root makes a directory with a random name, which only this user may enter. It is gone when the call
/// returns, and when it throws, whatever the reason: where a rank was killed, the others remove it. It stays behind
/// only where nobody is left who knows of it.
///
/// Collective. Throws as `collect_results` does, and where a rank cannot serialize, write or read: usage_error with the
/// reason on that rank (or what its serialization threw), peer_error with the same text on the others; decode_error on
/// the root where a file does not hold what it should. (MMEngine's `collect_results` with a `tmpdir`, which must be
/// unique and stays behind after an error.)
template <class T>
  requires serializable<std::vector<T>>
[[nodiscard]] std::vector<T> collect_results_in_files(std::vector<T> part, std::size_t size,
                                                      const std::filesystem::path& directory, int root = 0,
                                                      const process_group& group = world(),
                                                      std::source_location where = std::source_location::current()) {
  operation call = detail::object_call<std::vector<T>>("collect_results_in_files", movement::to_all, root, where);
  detail::running_call running(group, call);
  running.require_root();
  const auto context = running.context();
  const auto as_usage_error = [&](auto work) {
    try {
      return work();
    } catch (const error&) {
      throw;
    } catch (const std::runtime_error& problem) {
      throw usage_error(context, problem.what());
    }
  };
  const auto counts = detail::counts_of_results(running, call, part.size(), size, group);
  detail::require_enough(context, counts, size);
  const std::size_t wanted = detail::dealt_to(group.rank(), group.size(), size);
  part.erase(part.begin() + static_cast<std::ptrdiff_t>(wanted), part.end());

  std::optional<detail::results_directory> folder;
  const std::string name = detail::together(running, call, group, [&] {
    if (group.rank() == root) {
      as_usage_error([&] { folder.emplace(detail::results_directory::make(directory, group.size())); });
    }
    return folder ? folder->name() : std::string();
  });
  detail::together(running, call, group, [&] {
    std::vector<std::byte> bytes;
    encode(part, bytes);
    part = {};
    as_usage_error([&] {
      if (!folder) {
        folder.emplace(detail::results_directory::open(directory, name, group.size()));
      }
      folder->write(group.rank(), bytes);
    });
    return std::string();
  });
  std::vector<T> results;
  detail::together(running, call, group, [&] {
    if (group.rank() != root) {
      return std::string();
    }
    std::vector<std::vector<T>> parts(static_cast<std::size_t>(group.size()));
    for (int rank = 0; rank < group.size(); ++rank) {
      const auto bytes = as_usage_error([&] { return folder->read(rank); });
      try {
        decode_into(parts[static_cast<std::size_t>(rank)], bytes);
      } catch (const decode_error& problem) {
        throw decode_error(context, "the results of rank " + std::to_string(rank) + ": " + problem.detail());
      }
    }
    const auto ranks = static_cast<std::size_t>(group.size());
    results = detail::deal_back(std::move(parts), size, [&](std::size_t place) { return place % ranks; }, context);
    folder.reset();
    return std::string();
  });
  if (folder) {
    folder->keep();  // the root has removed it
  }
  return results;
}

/// Starts to collect results by way of files; the work's value is what `collect_results_in_files` returns.
template <class T>
  requires serializable<std::vector<T>>
work<std::vector<T>> collect_results_in_files_async(std::vector<T> part, std::size_t size,
                                                    std::filesystem::path directory, int root = 0,
                                                    const process_group& group = world(),
                                                    std::source_location where = std::source_location::current()) {
  return detail::start("collect_results_in_files", group, where,
                       [part = std::move(part), size, directory = std::move(directory), root, group, where]() mutable {
                         return collect_results_in_files(std::move(part), size, directory, root, group, where);
                       });
}

}  // namespace hfcomm
