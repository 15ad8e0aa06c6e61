// SPDX-License-Identifier: MIT
// A rank of a job on several machines. What it does is its first argument; see machines_test.py.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <unistd.h>

#include <hfcomm/comm.hpp>
#include <hfcomm/direct.hpp>

#include "digest.hpp"
#include "operations.hpp"
#include "training.hpp"

namespace {

using namespace hfcomm;

void print_digest(std::uint64_t digest) {
  if (rank() == 0) {
    std::printf("digest %016llx\n", static_cast<unsigned long long>(digest));
  }
}

/// Adds 16 MiB of numbers whose sum is exact, and prints whether it is right on all ranks.
void large() {
  const auto ranks = static_cast<float>(world_size());
  std::vector<float> data(4U << 20);
  for (std::size_t index = 0; index < data.size(); ++index) {
    data[index] = static_cast<float>(index % 1021) + static_cast<float>(rank());
  }
  all_reduce(data);
  int wrong = 0;
  for (std::size_t index = 0; index < data.size(); ++index) {
    wrong += data[index] == ranks * static_cast<float>(index % 1021) + ranks * (ranks - 1) / 2 ? 0 : 1;
  }
  print_main(all_reduce(wrong), " wrong sums");
}

/// Leaves after an operation in which each rank needs all others.
void leave() {
  barrier();
  if (rank() == 0) {
    std::puts("working");
    std::fflush(stdout);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const int sum = all_reduce(rank() + 1);
  std::printf("leaving, sum %d\n", sum);
  std::fflush(stdout);
}

/// One rank stays when all others have left.
void stay(int last) {
  barrier();
  if (rank() == last) {
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
  }
}

/// Works until an error tells that a rank is lost, and prints it.
void until_error() {
  try {
    barrier();
    std::vector<float> data(10'000, 1.0F);
    for (int step = 0;; ++step) {
      all_reduce(data, reduce_op::average);
      if (step == 20 && rank() == 0) {
        std::puts("working");
        std::fflush(stdout);
      }
    }
  } catch (const peer_error& problem) {
    std::printf("rank %d blames %d: %s\n", rank(), problem.peer(), problem.what());
  }
  std::fflush(stdout);
}

[[noreturn]] void fail() { throw std::runtime_error("the disk is full"); }

/// Works until the last rank is ended by an exception that nobody catches, and prints the error that tells of it.
void terminate_last() {
  if (rank() == world_size() - 1) {
    barrier();
    []() noexcept { fail(); }();
  }
  until_error();
}

/// Waits for a message that does not come, until an error tells that its rank is lost.
void message_until_error() {
  barrier();
  if (rank() == 0) {
    std::puts("working");
    std::fflush(stdout);
  }
  try {
    if (rank() == world_size() - 1) {
      std::this_thread::sleep_for(std::chrono::seconds(60));
    }
    static_cast<void>(recv<int>(world_size() - 1));
  } catch (const peer_error& problem) {
    std::printf("rank %d blames %d: %s\n", rank(), problem.peer(), problem.what());
  }
  std::fflush(stdout);
}

/// Makes groups beside the session: of all ranks, from the launcher's variables, and of the first and the last rank, at
/// an address. Prints what is wrong with them.
void connect_groups() {
  int wrong = 0;
  for (int turn = 0; turn < 3; ++turn) {
    const process_group everyone = connect();
    wrong += everyone.rank() == rank() && all_gather(rank(), everyone) == all_gather(rank()) ? 0 : 1;
    if (rank() == 0 || rank() == world_size() - 1) {
      init_options options;
      options.init_method = "tcp://" + std::string(std::getenv("HFCOMM_ADDRESS")) + ":20500";
      options.rank = rank() == 0 ? 0 : 1;
      options.world_size = 2;
      const process_group pair = connect(options);
      const process_group turned = pair.split(0, -pair.rank());
      wrong += all_gather(rank(), turned) == std::vector<int>{world_size() - 1, 0} ? 0 : 1;
      wrong += pair.host_backend() == "hierarchical" ? 0 : 1;
    }
    barrier(everyone);
  }
  print_main(all_reduce(wrong), " wrong groups");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view task = argc > 1 ? argv[1] : "operations";
  init_options options;
  options.start_timeout = std::chrono::seconds(60);
  if (const char* text = std::getenv("TEST_START_MS"); text != nullptr) {
    options.start_timeout = std::chrono::milliseconds(std::atoi(text));
  }
  if (const char* path = std::getenv("TEST_FILE"); path != nullptr) {
    options.init_method = std::string("file://") + path;
    options.rank = std::atoi(std::getenv("TEST_RANK"));
    options.world_size = std::atoi(std::getenv("TEST_SIZE"));
  }
  if (const char* text = std::getenv("TEST_SILENCE_MS"); text != nullptr) {
    options.silence_limit = std::chrono::milliseconds(std::atoi(text));
  }
  if (const char* text = std::getenv("TEST_LATE_MS"); text != nullptr) {
    std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(text)));
  }
  try {
    const auto session = init(options);
    std::printf("rank %d of %d is pid %d, node %d of %d, %d of %d there\n", rank(), world_size(),
                static_cast<int>(::getpid()), node_rank(), node_count(), local_rank(), local_size());
    std::fflush(stdout);
    if (task == "operations") {
      print_digest(test::digest_of_operations());
    } else if (task == "training") {
      print_digest(test::digest_of_training());
    } else if (task == "large") {
      large();
    } else if (task == "leave") {
      leave();
    } else if (task == "rank-0-stays") {
      stay(0);
    } else if (task == "last-rank-stays") {
      stay(world_size() - 1);
    } else if (task == "until-error") {
      until_error();
    } else if (task == "message-until-error") {
      message_until_error();
    } else if (task == "throw") {
      if (rank() == world_size() - 1) {
        fail();
      }
      barrier();
    } else if (task == "terminate") {
      terminate_last();
    } else if (task == "connect") {
      connect_groups();
    } else if (task == "mismatch") {
      auto values = test::numbers<float>(3, 0);
      rank() == 0 ? barrier() : broadcast(std::span(values), 0);
    } else if (task != "start") {
      return 2;
    }
    std::fflush(stdout);
  } catch (const std::exception& problem) {
    std::printf("error: %s\n", problem.what());
    return 1;
  }
  std::puts("the session has ended");
  std::fflush(stdout);
}
