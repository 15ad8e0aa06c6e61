// SPDX-License-Identifier: MIT
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../process/processes.hpp"
#include "bare_nccl.hpp"
#include "device.hpp"

/// Several ranks on one GPU, as processes. NCCL refuses two ranks of one machine on one GPU; these have machines of
/// their own, as far as NCCL can see, and talk through sockets. The process that starts them never touches CUDA, which
/// does not survive a fork.
namespace gpu {

inline void set_variable(const char* name, const std::string& value) {
  if (::setenv(name, value.c_str(), 1) != 0) {
    throw std::runtime_error(std::string("cannot set ") + name);
  }
}

/// Before this process's first call of NCCL, which reads them once.
inline void pretend_machine(int rank) {
  set_variable("NCCL_HOSTID", "hfcomm-" + std::to_string(rank));
  set_variable("NCCL_NET", "Socket");
  set_variable("NCCL_SOCKET_IFNAME", "lo");
  for (const char* way : {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"}) {
    set_variable(way, "1");
  }
  for (const char* part : {"NCCL_MNNVL_ENABLE", "NCCL_RAS_ENABLE", "NCCL_CUMEM_ENABLE"}) {
    set_variable(part, "0");
  }
  // The ranks take turns on the GPU: more blocks would only wait longer.
  set_variable("NCCL_MAX_CTAS", "2");
}

/// In a rank: throws unless the condition holds. The others get peer_error, and the test shows the text.
inline void require(bool condition, const std::string& text) {
  if (!condition) {
    throw std::runtime_error(text);
  }
}

/// In a rank: returns the error that `call` throws.
template <class Error, class Call>
Error expect_error(Call&& call) {
  try {
    std::forward<Call>(call)();
  } catch (const Error& problem) {
    return problem;
  }
  throw std::logic_error(std::string("nothing was thrown where this was expected: ") + typeid(Error).name());
}

/// Waits until the other ranks have broken the group.
inline void until_broken(const hfcomm::process_group& group) {
  while (!group.broken()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

using rank_main = std::function<void(const gpu::stream&)>;

/// Runs one rank: `body` in a session, on a device.
inline void be_rank(const std::string& job, int rank, int ranks, const rank_main& body) {
  pretend_machine(rank);
  const auto device = gpu::open();
  const hfcomm::session own = hfcomm::init(processes::job_options(job, rank, ranks));
  const gpu::stream stream;
  body(stream);
}

/// Starts `ranks` processes that run `body` as ranks of one world.
inline std::unique_ptr<processes::child_processes> start_ranks(const std::string& job, int ranks,
                                                               const rank_main& body) {
  const std::string name = processes::unique_name("gpu-" + job);
  return std::make_unique<processes::child_processes>(ranks, [=](int rank) { be_rank(name, rank, ranks, body); });
}

/// Time limit of a case with ranks: far more than it needs.
inline constexpr std::chrono::seconds time_limit{150};

/// Runs `body` on `ranks` ranks; each must end with status 0 and no output.
inline void run_ranks(const std::string& job, int ranks, const rank_main& body) {
  const auto outcomes = start_ranks(job, ranks, body)->wait(time_limit);
  for (int rank = 0; rank < ranks; ++rank) {
    INFO(job, ": rank ", rank, " of ", ranks);
    CHECK(outcomes[as_index(rank)].output == "");
    CHECK(outcomes[as_index(rank)].exited_with(0));
  }
}

/// Returns whether the case must be skipped because NCCL itself refuses several ranks on one GPU, and prints so. Tried
/// once in a process.
inline bool without_ranks(std::string_view name) {
  static const bare_nccl::answer answer = bare_nccl::ask(&pretend_machine);
  if (answer.refused && may_refuse_ranks()) {
    say_skipped(name, "NCCL refuses two ranks on one GPU here: " + answer.text);
    return true;
  }
  REQUIRE_MESSAGE(answer.works, answer.text);
  return false;
}

/// Runs `body` of the case `name` on 2 and on 4 ranks. Each run ends with all device work done.
inline void at_two_and_four(std::string_view name, const rank_main& body) {
  if (without_ranks(name)) {
    return;
  }
  for (const int ranks : {2, 4}) {
    run_ranks("ranks", ranks, [=](const gpu::stream& stream) {
      body(stream);
      hfcomm::barrier(stream);
      hfcomm::synchronize(stream);
    });
  }
}

}  // namespace gpu
