// SPDX-License-Identifier: MIT
// Faults of every kind at every place: every rank gets the right error within its deadline, nothing hangs or leaks.
// HFCOMM_FAULT_ROUNDS sets how often (once each in each way unless set).
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <hfcomm/ddp.hpp>

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
  call_hangs,
  no_communicator,
  init_hangs,
  first_call_hangs,
  abort_hangs,
};
constexpr int faults = 12;

enum class way : int { called, started, training };
constexpr int ways = 3;

struct scenario {
  fault what;
  way how;
  int ranks;
  int victim;

  /// Whether the fault is one of connecting, after which the group stays usable.
  [[nodiscard]] bool of_connecting() const {
    return what == fault::no_communicator || what == fault::init_hangs || what == fault::first_call_hangs;
  }
  [[nodiscard]] bool survived() const { return what == fault::none || of_connecting(); }
};

std::string text_of(const scenario& one) {
  constexpr std::array<const char*, faults> what = {"none",
                                                    "does not come",
                                                    "refuses",
                                                    "NCCL fails",
                                                    "fails later",
                                                    "throws",
                                                    "never completes",
                                                    "a call hangs",
                                                    "no communicator",
                                                    "initialising hangs",
                                                    "the first call hangs",
                                                    "aborting hangs"};
  constexpr std::array<const char*, ways> how = {"called", "started", "training"};
  return std::string(what[as_index(static_cast<int>(one.what))]) + ", " + how[as_index(static_cast<int>(one.how))] +
         ", on rank " + std::to_string(one.victim) + " of " + std::to_string(one.ranks);
}

/// The repeated work of a rank: an operation, its asynchronous form, or a step of training.
class task {
 public:
  task(way how, const process_group& world, stream_ref stream) : how_(how), world_(world), stream_(stream) {}

  /// May be called again after an exception.
  void connect(const process_group& world) {
    connect_device(world);
    if (how_ == way::training) {
      ddp_options options;
      options.first_bucket_bytes = options.bucket_bytes = 80;  // a bucket for each
      options.stream = stream_;
      ddp_.emplace(std::vector<ddp_parameter>{parameter("a", 0), parameter("b", 20)}, std::vector<ddp_buffer>{},
                   options, world);
    }
  }
  [[nodiscard]] process_group group() const { return ddp_ ? ddp_->device_group() : world_; }

  /// Runs the work once and waits for it.
  void operate(const process_group& group) {
    switch (how_) {
      case way::called:
        all_reduce(gradients_, stream_, reduce_op::sum, group);
        synchronize(stream_, group);
        break;
      case way::started: all_reduce_async(gradients_, stream_, reduce_op::sum, group).synchronize(); break;
      case way::training:
        ddp_->begin_forward();
        ddp_->mark_ready(1);
        ddp_->mark_ready(0);
        ddp_->finish();
        synchronize(stream_, group);
        break;
    }
  }
  /// Runs the work once with an invalid argument.
  void misuse(const process_group& group) {
    if (ddp_) {
      ddp_->begin_forward();
      ddp_->mark_ready(1);
      ddp_->finish();
    } else {
      all_reduce(gradients_, gradients_.span().first(1), stream_, reduce_op::sum, group);
    }
  }

 private:
  ddp_parameter parameter(const char* name, std::size_t first) {
    return named_parameter(name, values_.span().subspan(first, 20), gradients_.span().subspan(first, 20));
  }

  way how_;
  process_group world_;
  stream_ref stream_;
  device_buffer<float> values_{40};
  device_buffer<float> gradients_{40};
  std::optional<distributed_data_parallel> ddp_;
};

void fail_to_connect(const scenario& one, task& work, const process_group& world) {
  const bool is_victim = world.rank() == one.victim;
  if (one.how == way::training && one.what != fault::init_hangs) {
    connect_device(
        world);  // the fault hits the training's own group, whose communicator NCCL splits off instead of initializing
  }
  barrier(world);
  if (is_victim) {
    switch (one.what) {
      case fault::no_communicator: fake_cuda::fail_call("ncclCommSplit", 1, ncclSystemError, world.rank()); break;
      case fault::init_hangs: fake_cuda::hang_init(world.rank()); break;
      default: fake_cuda::hang_calls(world.rank()); break;
    }
  }
  barrier(world);
  const auto problem = error_of<engine_error>([&] { work.connect(world.with_timeout(500ms)); });
  if (one.what == fault::no_communicator) {
    CHECK_CONTAINS(problem.what(), "rank " + std::to_string(one.victim));
  }
  barrier(world);
  fake_cuda::release_inits();
  fake_cuda::release_calls();
  barrier(world);
}

void run_victim(const scenario& one, const process_group& world, task& work) {
  const auto group = work.group();
  switch (one.what) {
    case fault::does_not_come:
    case fault::abort_hangs: until_broken(group); break;
    case fault::refuses:
      CHECK_THROWS_AS(work.misuse(group), usage_error);
      until_broken(group);
      break;
    case fault::nccl_fails:
      fake_cuda::fail_call("ncclAllReduce", 1, ncclSystemError, world.rank());
      CHECK_THROWS_AS(work.operate(group), engine_error);
      break;
    case fault::fails_later:
      fake_cuda::never_complete(world.rank());
      fake_cuda::async_error_after(1, ncclRemoteError, world.rank());
      CHECK_THROWS_AS(work.operate(group), engine_error);
      break;
    case fault::throws: throw std::runtime_error("the victim's own");
    case fault::never_completes:
      fake_cuda::never_complete(world.rank());
      CHECK(error_of<timeout_error>([&] { work.operate(group); }).missing().empty());
      break;
    case fault::call_hangs: {
      const device_watch watch(100ms, group);
      fake_cuda::hang_calls(world.rank());
      CHECK_THROWS_AS(work.operate(group), timeout_error);
      break;
    }
    default: work.operate(group); break;
  }
}

void run_other(const scenario& one, task& work) {
  const auto group = work.group();
  const auto hurried = group.with_timeout(100ms);
  if (one.survived()) {
    work.operate(group);
    return;
  }
  switch (one.what) {
    case fault::does_not_come:
    case fault::abort_hangs: {
      // A rank that the machine did not run for so long is missing, too.
      const auto missing = error_of<timeout_error>([&] { work.operate(hurried); }).missing();
      CHECK(std::find(missing.begin(), missing.end(), one.victim) != missing.end());
      break;
    }
    case fault::never_completes: CHECK_THROWS_AS(work.operate(hurried), timeout_error); break;
    case fault::call_hangs:
      CHECK_CONTAINS(error_of<timeout_error>([&] { work.operate(group); }).what(),
                     "the work that rank " + std::to_string(one.victim) + " put on its device");
      break;
    default: CHECK(error_of<peer_error>([&] { work.operate(group); }).peer() == one.victim);
  }
}

void run_scenario(const scenario& one) {
  INFO(text_of(one));
  const fake_cuda::install fake;
  try {
    testing::run_ranks(one.ranks, [&](const process_group& world) {
      const rank_stream stream(world);
      task work(one.how, world, stream);
      const auto begun = std::chrono::steady_clock::now();
      if (one.of_connecting()) {
        fail_to_connect(one, work, world);
      }
      work.connect(world);
      if (one.what == fault::abort_hangs) {
        fake_cuda::hang_abort(world.rank());
      }
      work.operate(work.group());
      barrier(world);
      world.rank() == one.victim ? run_victim(one, world, work) : run_other(one, work);
      // The deadlines are of 0.1 and 0.5 s, that of tearing down 2 s, and who waits for none of them waits for minutes.
      CHECK(std::chrono::steady_clock::now() - begun < 20s);
      if (one.survived()) {
        barrier(world);
      }
      CHECK(work.group().broken() == !one.survived());
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

TEST_CASE("device faults: every fault in every kind of call, on random ranks, ends in the right error") {
  const char* rounds = std::getenv("HFCOMM_FAULT_ROUNDS");
  const int count = rounds != nullptr ? std::atoi(rounds) : faults * ways;
  REQUIRE(count > 0);
  const auto before = std::exchange(default_nccl_options().teardown_timeout, std::chrono::nanoseconds(2s));
  std::mt19937 random(20261122);
  for (int round = 0; round < count; ++round) {
    const int ranks = 2 + static_cast<int>(random() % 3);
    const scenario one{static_cast<fault>(round % faults), static_cast<way>(round / faults % ways), ranks,
                       static_cast<int>(random() % static_cast<unsigned>(ranks))};
    default_nccl_options().teardown_timeout = one.what == fault::abort_hangs ? 10ms : 2s;
    run_scenario(one);
  }
  default_nccl_options().teardown_timeout = before;
}

}  // namespace
