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
  const hfcomm::session own = hfcomm::init(processes::job(job, rank, ranks));
  const gpu::stream stream;
  body(stream);
}

/// Starts so many; each is `world()` in its body.
inline std::unique_ptr<processes::family> start_ranks(const std::string& job, int ranks, const rank_main& body) {
  const std::string name = processes::unique("gpu-" + job);
  return std::make_unique<processes::family>(ranks, [=](int rank) { be_rank(name, rank, ranks, body); });
}

/// How long a case with ranks may take: far more than it does where all is well.
inline constexpr std::chrono::seconds patience{150};

/// Runs `body` on so many ranks; each must end well, without a word.
inline void run_ranks(const std::string& job, int ranks, const rank_main& body) {
  const auto outcomes = start_ranks(job, ranks, body)->wait(patience);
  for (int rank = 0; rank < ranks; ++rank) {
    INFO(job, ": rank ", rank, " of ", ranks);
    CHECK(outcomes[as_index(rank)].said == "");
    CHECK(outcomes[as_index(rank)].exited_with(0));
  }
}

/// Whether several ranks can be had on one GPU at all.
struct trial {
  bool works = false;
  bool refused = false;  ///< by NCCL, in its own words; otherwise something is wrong
  std::string text;
};

inline trial try_ranks() {
  const auto family = start_ranks("trial", 2, [](const gpu::stream& stream) {
    using namespace hfcomm;
    auto data = on_device(std::vector<float>(1000, static_cast<float>(world().rank() + 1)), stream);
    (void)cuda::nccl();
    const auto hurried = world().with_timeout(std::chrono::seconds(40));
    try {
      connect_device(hurried);
      all_reduce(data, stream, reduce_op::sum, hurried);
      synchronize(stream, hurried);
    } catch (const engine_error& problem) {
      if (says(problem, "NCCL error")) {
        processes::say(std::string("refused: ") + problem.what());
        return;
      }
      throw;
    }
    processes::say(on_host(data, stream) == std::vector<float>(1000, 3.0F) ? "right" : "wrong sums");
  });
  const auto outcomes = family->wait(std::chrono::seconds(60));
  trial result;
  result.works = true;
  bool wrong = false;
  for (const auto& outcome : outcomes) {
    result.works = result.works && outcome.said == "right\n" && outcome.exited_with(0);
    result.refused = result.refused || outcome.said.starts_with("refused: ");
    wrong = wrong || outcome.said.starts_with("wrong");
  }
  result.refused = result.refused && !wrong;
  for (std::size_t rank = 0; !result.works && rank < outcomes.size(); ++rank) {
    const auto& [status, said, ended] = outcomes[rank];
    if (result.refused && result.text.empty() && said.starts_with("refused: ")) {
      result.text = said.substr(0, said.find('\n'));
    } else if (!result.refused) {
      result.text += "rank " + std::to_string(rank) + " (wait status " + std::to_string(status) + "): " + said;
    }
  }
  return result;
}

/// Once in a process.
inline const trial& the_trial() {
  static const trial result = try_ranks();
  return result;
}

/// Whether the case cannot be run, because NCCL does not let several ranks use one GPU; says so. Anything else that
/// keeps them from it fails the case.
inline bool without_ranks(std::string_view name) {
  const trial& result = the_trial();
  if (result.refused) {
    say_skipped(name, "NCCL has no two ranks on one GPU here: " + result.text);
    return true;
  }
  REQUIRE_MESSAGE(result.works, result.text);
  return false;
}

}  // namespace gpu
