// SPDX-License-Identifier: MIT
// Whatever goes wrong, wherever: every rank gets the right error within its deadline, and nothing hangs or is left.
// HFCOMM_FAULT_ROUNDS sets how often (60 unless set).
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "device_ranks.hpp"

namespace {

using namespace hfcomm;
using namespace device_ranks;
using namespace std::chrono_literals;

enum class fault : int {
  none,
  does_not_come,
  refuses,
  nccl_fails,
  fails_later,
  throws,
  never_completes,
  no_communicator,
  abort_hangs,
};
constexpr int faults = 9;

struct scenario {
  fault what;
  int ranks;
  int victim;
  bool started;  // by the asynchronous form
};

std::string text_of(const scenario& one) {
  return "fault " + std::to_string(static_cast<int>(one.what)) + " on rank " + std::to_string(one.victim) + " of " +
         std::to_string(one.ranks) + (one.started ? ", started" : "");
}

/// The operation, and waiting for it.
void operate(device_buffer<float>& data, stream_ref stream, const scenario& one, const process_group& group) {
  if (one.started) {
    all_reduce_async(data, stream, reduce_op::sum, group).synchronize();
  } else {
    all_reduce(data, stream, reduce_op::sum, group);
    synchronize(stream, group);
  }
}

void run_victim(const scenario& one, const process_group& world, stream_ref stream, device_buffer<float>& data) {
  switch (one.what) {
    case fault::does_not_come:
    case fault::abort_hangs: until_broken(world); break;
    case fault::refuses:
      CHECK_THROWS_AS(all_reduce(data, data.span().first(1), stream, reduce_op::sum, world), usage_error);
      until_broken(world);
      break;
    case fault::nccl_fails:
      fake_cuda::fail_call("ncclAllReduce", 1, ncclSystemError, world.rank());
      CHECK_THROWS_AS(operate(data, stream, one, world), engine_error);
      break;
    case fault::fails_later:
      fake_cuda::never_complete(world.rank());
      fake_cuda::async_error_after(1, ncclRemoteError, world.rank());
      CHECK_THROWS_AS(operate(data, stream, one, world), engine_error);
      break;
    case fault::throws: throw std::runtime_error("the victim's own");
    case fault::never_completes:
      fake_cuda::never_complete(world.rank());
      CHECK(error_of<timeout_error>([&] { operate(data, stream, one, world); }).missing().empty());
      break;
    default: operate(data, stream, one, world); break;
  }
}

void run_other(const scenario& one, const process_group& world, stream_ref stream, device_buffer<float>& data) {
  const auto hurried = world.with_timeout(100ms);
  switch (one.what) {
    case fault::none:
    case fault::no_communicator: operate(data, stream, one, world); break;
    case fault::does_not_come:
    case fault::abort_hangs: {
      // A rank that the machine kept from running for so long is missing, too.
      const auto missing = error_of<timeout_error>([&] { operate(data, stream, one, hurried); }).missing();
      CHECK(std::find(missing.begin(), missing.end(), one.victim) != missing.end());
      break;
    }
    case fault::never_completes: CHECK_THROWS_AS(operate(data, stream, one, hurried), timeout_error); break;
    default: CHECK(error_of<peer_error>([&] { operate(data, stream, one, world); }).peer() == one.victim);
  }
}

void play(const scenario& one) {
  INFO(text_of(one));
  const fake_cuda::install fake;
  try {
    testing::run_ranks(one.ranks, [&](const process_group& world) {
      const rank_stream stream(world);
      device_buffer<float> data(16);
      const bool is_victim = world.rank() == one.victim;
      if (one.what == fault::no_communicator) {
        if (is_victim) {
          fake_cuda::fail_call("ncclCommSplit", 1, ncclSystemError, world.rank());
        }
        barrier(world);
        const auto problem = error_of<engine_error>([&] { connect_device(world.with_timeout(500ms)); });
        CHECK(std::string(problem.what()).find("rank " + std::to_string(one.victim)) != std::string::npos);
      }
      connect_device(world);
      if (one.what == fault::abort_hangs) {
        fake_cuda::hang_abort(world.rank());
      }
      operate(data, stream, one, world);
      barrier(world);
      is_victim ? run_victim(one, world, stream, data) : run_other(one, world, stream, data);
      const bool survives = one.what == fault::none || one.what == fault::no_communicator;
      if (survives) {
        barrier(world);
      }
      CHECK(world.broken() == !survives);
      fake_cuda::release_aborts();
    });
    CHECK(one.what != fault::throws);
  } catch (const std::runtime_error& problem) {
    CHECK(one.what == fault::throws);
    CHECK(std::string(problem.what()) == "the victim's own");
  }
  if (one.what != fault::abort_hangs) {
    CHECK(fake_cuda::live().communicators == 0);
    CHECK(fake_cuda::live().allocations == 0);
  }
}

TEST_CASE("device faults: at random") {
  const char* rounds = std::getenv("HFCOMM_FAULT_ROUNDS");
  const int count = rounds != nullptr ? std::atoi(rounds) : 60;
  const auto before = std::exchange(default_nccl_options().teardown_timeout, std::chrono::nanoseconds(2s));
  std::mt19937 random(20261122);
  for (int round = 0; round < count; ++round) {
    const int ranks = 2 + static_cast<int>(random() % 3);
    const scenario one{static_cast<fault>(round % faults), ranks,
                       static_cast<int>(random() % static_cast<unsigned>(ranks)), random() % 2 == 0};
    default_nccl_options().teardown_timeout = one.what == fault::abort_hangs ? 10ms : 2s;
    play(one);
  }
  default_nccl_options().teardown_timeout = before;
}

}  // namespace
