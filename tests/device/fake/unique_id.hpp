// SPDX-License-Identifier: MIT
#pragma once

#include <cstring>
#include <memory>
#include <string>

#include <nccl.h>

#include <hfcomm/group/detail/identity.hpp>
#include <hfcomm/group/session.hpp>
#include <hfcomm/machine/random_id.hpp>

#include <fake/world.hpp>

namespace fake_cuda::detail {

inline constexpr const char* id_of_threads = "fake-nccl-threads:";
inline constexpr const char* id_of_processes = "fake-nccl-processes:";

/// Returns whether the ranks are processes. Unless a test has set it, they are where this process is one of several.
inline bool ranks_are_processes(const world& all) {
  const int mode = all.ranks_mode.load();
  const auto& own = hfcomm::detail::process_identity();
  return mode != 0 ? mode == 2 : own.numbers.initialized && own.world.size() > 1;
}

inline ncclUniqueId make_id(const world& all) {
  const std::string text =
      (ranks_are_processes(all) ? id_of_processes : id_of_threads) + hfcomm::rendezvous::random_id();
  ncclUniqueId id{};
  std::memcpy(id.internal, text.data(), text.size());
  return id;
}

inline std::string text_of(const ncclUniqueId& id) {
  return {id.internal, ::strnlen(id.internal, sizeof(id.internal))};
}

/// Waits for the other ranks of an id. Returns null where this one is aborted meanwhile.
inline std::shared_ptr<hfcomm::engines::host_engine> meet(world& all, const std::string& id, const ncclComm& comm) {
  if (id.rfind(id_of_processes, 0) == 0) {
    return meet_processes(id, comm.rank, comm.ranks, comm.aborted);
  }
  auto engine = all.meetings.at(id, comm.ranks)->join(comm.rank, comm.ranks, comm.aborted);
  if (engine != nullptr) {
    all.meetings.close(id);
  }
  return engine;
}

}  // namespace fake_cuda::detail
