// SPDX-License-Identifier: MIT
#pragma once

#include <exception>
#include <optional>
#include <stdexcept>
#include <string>

#include <hfcomm/collectives/collect_results_in_files.hpp>
#include <hfcomm/collectives/detail/results_directory.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/serialization/std_types.hpp>

namespace hfcomm::detail {

/// Runs `work` on this rank and waits for the others' outcomes; returns what `work` returned on the root. A rank whose
/// `work` threw throws that exception again, the others throw peer_error with its text. They throw only when all are
/// done, so that no rank still uses a directory that is about to be removed.
HFCOMM_INLINE std::string run_on_all(running_call& running, operation call, const process_group& group,
                                     function_ref<std::string()> work) {
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
      throw_error<peer_error>(context, {"rank ", rank, " failed in ", call.name.text, ": ", all[rank].first},
                              static_cast<int>(rank), false);
    }
  }
  return all[static_cast<std::size_t>(call.root)].second;
}

/// Calls `work`. Converts a std::runtime_error that is not an `error` to a usage_error with its text.
HFCOMM_INLINE void with_usage_errors(const error_context& context, function_ref<void()> work) {
  try {
    work();
  } catch (const error&) {
    throw;
  } catch (const std::runtime_error& problem) {
    throw_error<usage_error>(context, {problem.what()});
  }
}

HFCOMM_INLINE void exchange_files(running_call& running, const operation& call, const process_group& group,
                                  const file_path& directory, const part_files& files) {
  const auto context = running.context();
  const bool is_root = group.rank() == call.root;
  const std::filesystem::path parent = directory.string();
  std::optional<results_directory> folder;
  const std::string name = run_on_all(running, call, group, [&] {
    if (is_root) {
      with_usage_errors(context, [&] { folder.emplace(results_directory::make(parent, group.size())); });
    }
    return folder ? folder->name() : std::string();
  });
  run_on_all(running, call, group, [&] {
    std::vector<std::byte> bytes;
    files.encode_part(bytes);
    with_usage_errors(context, [&] {
      if (!folder) {
        folder.emplace(results_directory::open(parent, name, group.size()));
      }
      folder->write(group.rank(), bytes);
    });
    return std::string();
  });
  run_on_all(running, call, group, [&] {
    if (!is_root) {
      return std::string();
    }
    for (int rank = 0; rank < group.size(); ++rank) {
      std::vector<std::byte> bytes;
      with_usage_errors(context, [&] { bytes = folder->read(rank); });
      try {
        files.decode_part(rank, bytes);
      } catch (const decode_error& problem) {
        throw_error<decode_error>(context, {"the results of rank ", rank, ": ", problem.detail()});
      }
    }
    files.merge();
    folder.reset();
    return std::string();
  });
  if (folder) {
    folder->keep();  // the root has removed it
  }
}

}  // namespace hfcomm::detail
