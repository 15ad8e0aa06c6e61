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
  // The ranks take turns on the GPU: what is spread wide only waits more.
  set_variable("NCCL_MAX_CTAS", "2");
}

/// In a rank: ends it, unless it holds. The others get peer_error, and the test shows the text.
inline void require(bool condition, const std::string& text) {
  if (!condition) {
    throw std::runtime_error(text);
  }
}

/// In a rank: the error that `call` throws.
template <class Error, class Call>
Error expect_error(Call&& call) {
  try {
    std::forward<Call>(call)();
  } catch (const Error& problem) {
    return problem;
  }
  throw std::logic_error(std::string("nothing was thrown where this was expected: ") + typeid(Error).name());
}

/// For the rank that the others give up.
inline void until_broken(const hfcomm::process_group& group) {
  while (!group.broken()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

using rank_main = std::function<void(const gpu::stream&)>;

/// One rank's life: `body` in a session, on a device.
inline void be_rank(const std::string& job, int rank, int ranks, const rank_main& body) {
  pretend_machine(rank);
  const auto device = gpu::open();
  const hfcomm::session own = hfcomm::init(processes::job_options(job, rank, ranks));
  const gpu::stream stream;
  body(stream);
}

/// Starts so many; each is `world()` in its body.
inline std::unique_ptr<processes::child_processes> start_ranks(const std::string& job, int ranks,
                                                               const rank_main& body) {
  const std::string name = processes::unique_name("gpu-" + job);
  return std::make_unique<processes::child_processes>(ranks, [=](int rank) { be_rank(name, rank, ranks, body); });
}

/// How long a case with ranks may take: far more than it does where all is well.
inline constexpr std::chrono::seconds patience{150};

/// Runs `body` on so many ranks; each must end well, without a word.
inline void run_ranks(const std::string& job, int ranks, const rank_main& body) {
  const auto outcomes = start_ranks(job, ranks, body)->wait(patience);
  for (int rank = 0; rank < ranks; ++rank) {
    INFO(job, ": rank ", rank, " of ", ranks);
    CHECK(outcomes[as_index(rank)].output == "");
    CHECK(outcomes[as_index(rank)].exited_with(0));
  }
}

/// Whether the case cannot be run, because NCCL itself does not let several ranks use one GPU; says so. Asked once in a
/// process.
inline bool without_ranks(std::string_view name) {
  static const bare_nccl::answer answer = bare_nccl::ask(&pretend_machine);
  if (answer.refused && may_refuse_ranks()) {
    say_skipped(name, "NCCL refuses two ranks on one GPU here: " + answer.text);
    return true;
  }
  REQUIRE_MESSAGE(answer.works, answer.text);
  return false;
}

/// The case with that name: `body` on 2 ranks, and on 4; at the end of each nobody's device has anything left to do.
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
