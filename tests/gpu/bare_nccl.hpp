// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include <hfcomm/engine/nccl/communicator.hpp>
#include "../process/processes.hpp"

#include "device.hpp"

/// Tries two ranks on one GPU with NCCL alone, without hfcomm. If this fails, hfcomm cannot work; if it works, hfcomm
/// must work, too.
namespace gpu::bare_nccl {

struct refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws a refusal, or another `Problem`, if the result is an error.
template <class Problem = refusal>
void check(ncclResult_t result, const char* what) {
  if (result != ncclSuccess) {
    throw Problem(std::string(what) + ": " + hfcomm::engines::nccl_text(hfcomm::cuda::nccl(), result));
  }
}

/// One of the two processes; the id goes from the first to the second through the pipe.
inline void be_rank(int rank, const std::array<int, 2>& pipe) {
  ::close(pipe[rank == 0 ? 0 : 1]);  // so that a rank whose peer is gone reads the end of the pipe
  const auto device = gpu::open();
  const gpu::stream stream;
  const auto& nccl = hfcomm::cuda::nccl();
  ncclUniqueId id{};
  if (rank == 0) {
    check<std::runtime_error>(nccl.ncclGetUniqueId(&id), "ncclGetUniqueId");
    if (::write(pipe[1], &id, sizeof id) != static_cast<ssize_t>(sizeof id)) {
      throw std::runtime_error("the id cannot be sent");
    }
  } else if (::read(pipe[0], &id, sizeof id) != static_cast<ssize_t>(sizeof id)) {
    throw std::runtime_error("the id did not come");
  }
  ncclComm_t one = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  check(nccl.ncclCommInitRankConfig(&one, 2, id, rank, &config), "ncclCommInitRankConfig");
  auto data = on_device(std::vector<float>(1000, static_cast<float>(rank + 1)), stream.get());
  check(nccl.ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclSum, one, stream.get()),
        "ncclAllReduce");
  if (on_host(data, stream.get()) != std::vector<float>(1000, 3.0F)) {
    throw std::runtime_error("wrong sums");
  }
  check<std::runtime_error>(nccl.ncclCommDestroy(one), "ncclCommDestroy");
}

struct answer {
  bool works = false;
  bool refused = false;  ///< NCCL refused; any other failure is an error
  std::string text;
};

/// `prepare(rank)` is called first in each process.
template <class Prepare>
answer ask(const Prepare& prepare) {
  std::array<int, 2> pipe{};
  if (::pipe(pipe.data()) != 0) {
    return {false, false, "there is no pipe"};
  }
  processes::child_processes children(2, [&](int rank) {
    prepare(rank);
    try {
      be_rank(rank, pipe);
    } catch (const refusal& problem) {
      processes::report(std::string("refused: ") + problem.what());
    }
  });
  std::for_each(pipe.begin(), pipe.end(), ::close);
  const auto outcomes = children.wait(std::chrono::seconds(60));
  answer result{true, false, {}};
  bool odd = false;
  for (const auto& one : outcomes) {
    const bool refused = one.output.starts_with("refused: ");
    result.works = result.works && one.output.empty() && one.exited_with(0);
    result.refused = result.refused || refused;
    // A rank whose peer was refused hangs.
    odd = odd || (one.output.empty() ? !one.exited_with(0) : !refused && one.output != "HUNG\n");
    result.text += one.output.empty() ? "wait status " + std::to_string(one.wait_status) + "\n" : one.output;
  }
  result.refused = result.refused && !odd;
  return result;
}

}  // namespace gpu::bare_nccl
