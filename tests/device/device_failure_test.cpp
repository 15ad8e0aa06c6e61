// SPDX-License-Identifier: MIT
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "device_ranks.hpp"

namespace {

using namespace hfcomm;
using namespace device_ranks;
using namespace std::chrono_literals;

/// Aborting and destroying have little time, for the tests in which they never end.
class short_teardown {
 public:
  explicit short_teardown(std::chrono::nanoseconds patience)
      : before_(std::exchange(default_nccl_options().teardown_timeout, patience)) {}
  short_teardown(const short_teardown&) = delete;
  short_teardown& operator=(const short_teardown&) = delete;
  ~short_teardown() { default_nccl_options().teardown_timeout = before_; }

 private:
  std::chrono::nanoseconds before_;
};

TEST_CASE("device failures: after the deadline a rank that never calls is named") {
  const fake_cuda::install fake;
  testing::run_ranks(3, [](const process_group& world) {
    const rank_stream stream(world);
    connect_device(world);
    device_buffer<float> data(8);
    if (world.rank() != 2) {
      const auto hurried = world.with_timeout(200ms);
      all_reduce(data, stream, reduce_op::sum, hurried);
      const auto problem = error_of<timeout_error>([&] { synchronize(stream, hurried); });
      CHECK((problem.missing() == std::vector<int>{2}));
      CHECK(world.broken());
      CHECK((error_of<timeout_error>([&] { barrier(world); }).missing() == std::vector<int>{2}));
    } else {
      until_broken(world);
      CHECK_THROWS_AS(all_reduce(data, stream, reduce_op::sum, world), timeout_error);
    }
  });
  CHECK(fake_cuda::live().communicators == 0);
}

TEST_CASE(
    "connect_device: a network that transfers nothing is an error within the deadline, and the group stays usable") {
  const fake_cuda::install fake;
  testing::run_ranks(3, [](const process_group& world) {
    const rank_stream stream(world);
    const auto hurried = world.with_timeout(300ms);
    if (world.rank() == 0) {
      fake_cuda::hang_calls(1);  // on the host of rank 1, while the devices of the others wait for it
    }
    barrier(world);
    const auto begun = std::chrono::steady_clock::now();
    const auto problem = error_of<engine_error>([&] { connect_device(hurried); });
    CHECK(std::chrono::steady_clock::now() - begun < 20s);
    CHECK_CONTAINS(problem.what(), "a first all-reduce of one element: it has not ended within 300 ms");
    barrier(world);
    fake_cuda::release_calls();
    barrier(world);
    connect_device(world);
    device_buffer<float> data(8);
    all_reduce(data, stream, reduce_op::sum, world);
    synchronize(stream, world);
    CHECK_FALSE(world.broken());
  });
  CHECK(fake_cuda::live() == fake_cuda::live_objects{});
}

TEST_CASE(
    "connect_device: a rank that NCCL does not find is an error within the deadline, and the group stays usable") {
  const fake_cuda::install fake;
  testing::run_ranks(3, [](const process_group& world) {
    const rank_stream stream(world);
    if (world.rank() == 0) {
      fake_cuda::hang_init(1);
    }
    const auto hurried = world.with_timeout(300ms);
    barrier(world);
    CHECK_CONTAINS(error_of<engine_error>([&] { connect_device(hurried); }).what(),
                   "ncclCommInitRankConfig has not ended within 300 ms");
    barrier(world);
    fake_cuda::release_inits();
    barrier(world);
    connect_device(world);
    CHECK_FALSE(world.broken());
  });
  CHECK(fake_cuda::live() == fake_cuda::live_objects{});
}

TEST_CASE("connect_device: an error of the first operation on one rank is an error on every rank") {
  const fake_cuda::install fake;
  testing::run_ranks(3, [](const process_group& world) {
    const rank_stream stream(world);
    if (world.rank() == 0) {
      fake_cuda::fail_call("ncclAllReduce", 1, ncclSystemError, 2);
    }
    const auto hurried = world.with_timeout(300ms);
    barrier(world);
    CHECK_CONTAINS(error_of<engine_error>([&] { connect_device(hurried); }).what(),
                   "on rank 2, a first all-reduce of one element: ");
    connect_device(world);
    CHECK_FALSE(world.broken());
  });
  CHECK(fake_cuda::live() == fake_cuda::live_objects{});
}

TEST_CASE("device failures: a rank that leaves by an exception frees the others' devices") {
  const fake_cuda::install fake;
  std::string heard;
  try {
    testing::run_ranks(3, [&](const process_group& world) {
      const rank_stream stream(world);
      connect_device(world);
      device_buffer<float> data(8);
      if (world.rank() == 1) {
        throw std::runtime_error("out of data");
      }
      auto work = all_reduce_async(data, stream, reduce_op::sum, world);
      try {
        work.synchronize();
      } catch (const peer_error& problem) {
        if (world.rank() == 0) {
          heard = problem.what();
        }
        CHECK(problem.peer() == 1);
        throw;
      }
    });
    FAIL("nothing was thrown");
  } catch (const std::runtime_error& cause) {
    CHECK(std::string(cause.what()) == "out of data");
  }
  CHECK(heard.find("rank 1") != std::string::npos);
  CHECK(fake_cuda::live().communicators == 0);
}

TEST_CASE("device failures: a host operation that breaks the group frees the device") {
  const fake_cuda::install fake;
  testing::run_ranks(2, [](const process_group& world) {
    const rank_stream stream(world);
    connect_device(world);
    device_buffer<float> data(8);
    if (world.rank() == 0) {
      all_reduce(data, stream, reduce_op::sum, world);
      CHECK_THROWS_AS(barrier(world.with_timeout(100ms)), timeout_error);
      // Nothing of the device is left spinning: this returns.
      CHECK(cuda::runtime().cudaStreamSynchronize(stream.get()) == cudaSuccess);
    } else {
      until_broken(world);
    }
  });
}

TEST_CASE("device failures: a watch frees a rank that waits by other means than hfcomm's") {
  const fake_cuda::install fake;
  testing::run_ranks(2, [](const process_group& world) {
    const rank_stream stream(world);
    connect_device(world);
    device_buffer<float> data(8);
    const device_watch watch(500ms, world);
    CHECK_THROWS_AS(device_watch(500ms, world), usage_error);
    for (int turn = 0; turn < 3; ++turn) {
      all_reduce(data, stream, reduce_op::max, world);
    }
    CHECK(cuda::runtime().cudaStreamSynchronize(stream.get()) == cudaSuccess);
    // Computation before it takes longer than the deadline: that is no stuck operation.
    fake_cuda::launch(stream.get(), [] { std::this_thread::sleep_for(900ms); });
    all_reduce(data, stream, reduce_op::max, world);
    CHECK(cuda::runtime().cudaStreamSynchronize(stream.get()) == cudaSuccess);
    CHECK_FALSE(world.broken());
    if (world.rank() == 0) {
      all_reduce(data, stream, reduce_op::max, world);
      CHECK(cuda::runtime().cudaStreamSynchronize(stream.get()) == cudaSuccess);
      CHECK((error_of<timeout_error>([&] { all_reduce(data, stream, reduce_op::max, world); }).missing() ==
             std::vector<int>{1}));
    } else {
      until_broken(world);
    }
  });
}

TEST_CASE("device failures: a watch frees a rank that hangs in a call on the host") {
  for (const bool batched : {false, true}) {
    INFO("batched ", batched);
    const fake_cuda::install fake;
    testing::run_ranks(2, [&](const process_group& world) {
      const rank_stream stream(world);
      connect_device(world);
      device_buffer<float> data(8);
      barrier(world);
      if (world.rank() == 0) {
        fake_cuda::hang_calls(0);  // NCCL connects the ranks, and the other one does not come
        const device_watch watch(300ms, world);
        if (batched) {
          nccl_group_scope scope(world);
          all_reduce(data, stream, reduce_op::max, world);
          CHECK_THROWS_AS(scope.end(), error);
        } else {
          CHECK_THROWS_AS(all_reduce(data, stream, reduce_op::max, world), error);
        }
        CHECK_THROWS_AS(all_reduce(data, stream, reduce_op::max, world), timeout_error);
      } else {
        until_broken(world);
      }
    });
  }
}

TEST_CASE("device failures: freeing a buffer of an operation that cannot complete does not delay an exception") {
  const short_teardown patience(100ms);
  const fake_cuda::install fake;
  const auto begun = std::chrono::steady_clock::now();
  const std::string cause = cause_of(2, [](const process_group& world) {
    const rank_stream stream(world);
    connect_device(world);
    if (world.rank() == 0) {
      const device_buffer<float> data(8);
      const pinned_buffer<float> pinned(8);
      device_buffer<float> sum(8);
      all_reduce(data, sum, stream, reduce_op::sum, world);
      throw std::runtime_error("out of data");
    }
    barrier(world);
  });
  CHECK(cause == "out of data");
  CHECK(std::chrono::steady_clock::now() - begun < 20s);
}

TEST_CASE("device failures: a watch notices a lost rank") {
  const fake_cuda::install fake;
  const std::string cause = cause_of(2, [](const process_group& world) {
    const rank_stream stream(world);
    connect_device(world);
    device_buffer<float> data(8);
    if (world.rank() == 1) {
      throw std::runtime_error("gone");
    }
    const device_watch watch(world);
    all_reduce(data, stream, reduce_op::max, world);
    CHECK(cuda::runtime().cudaStreamSynchronize(stream.get()) == cudaSuccess);
    CHECK_THROWS_AS(all_reduce(data, stream, reduce_op::max, world), peer_error);
  });
  CHECK(cause == "gone");
}

TEST_CASE("device failures: each NCCL error becomes the matching hfcomm error") {
  for (const ncclResult_t result : {ncclSystemError, ncclUnhandledCudaError, ncclInternalError, ncclRemoteError,
                                    ncclInvalidArgument, ncclInvalidUsage}) {
    const bool fatal = result != ncclInvalidArgument && result != ncclInvalidUsage;
    INFO("NCCL error ", static_cast<int>(result));
    const fake_cuda::install fake;
    testing::run_ranks(2, [&](const process_group& world) {
      const rank_stream stream(world);
      connect_device(world);
      device_buffer<float> data(8);
      barrier(world);
      if (world.rank() == 1) {
        fake_cuda::fail_call("ncclAllReduce", 1, result, 1);
        if (fatal) {
          CHECK(says(error_of<engine_error>([&] { all_reduce(data, stream, reduce_op::sum, world); }), "NCCL error"));
          CHECK(world.broken());
        } else {
          CHECK(says(error_of<usage_error>([&] { all_reduce(data, stream, reduce_op::sum, world); }), "NCCL error"));
        }
      } else {
        all_reduce(data, stream, reduce_op::sum, world);
        const auto problem = error_of<peer_error>([&] { synchronize(stream, world); });
        CHECK(problem.peer() == 1);
        CHECK(says(problem, "NCCL error"));
      }
    });
    CHECK(fake_cuda::live().communicators == 0);
  }
}

TEST_CASE("device failures: an asynchronous NCCL error is an error on every rank") {
  const fake_cuda::install fake;
  testing::run_ranks(2, [](const process_group& world) {
    const rank_stream stream(world);
    connect_device(world);
    device_buffer<float> data(8);
    barrier(world);
    if (world.rank() == 0) {
      fake_cuda::never_complete(0);
      fake_cuda::async_error_after(2, ncclRemoteError, 0);
    }
    barrier(world);
    all_reduce(data, stream, reduce_op::sum, world);
    if (world.rank() == 0) {
      CHECK_THROWS_AS(synchronize(stream, world), engine_error);
    } else {
      CHECK(error_of<peer_error>([&] { synchronize(stream, world); }).peer() == 0);
    }
    CHECK(world.broken());
  });
}

TEST_CASE(
    "device failures: a communicator that cannot be created is an error on every rank, and the group stays usable") {
  for (const char* call : {"ncclGetUniqueId", "ncclCommInitRankConfig", "ncclCommSplit", "cudaMalloc",
                           "cudaDeviceGetPCIBusId", "ncclCommUserRank"}) {
    INFO(call);
    const fake_cuda::install fake;
    testing::run_ranks(3, [&](const process_group& world) {
      REQUIRE(cuda::runtime().cudaSetDevice(world.rank()) == cudaSuccess);
      const int culprit = std::string_view(call) == "ncclGetUniqueId" ? 0 : 1;
      const bool of_cuda = std::string_view(call).starts_with("cuda");
      if (world.rank() == 0) {
        of_cuda ? fake_cuda::fail_call(call, 1, cudaErrorMemoryAllocation, culprit)
                : fake_cuda::fail_call(call, 1, ncclSystemError, culprit);
      }
      barrier(world);
      const auto problem = error_of<engine_error>([&] { connect_device(world.with_timeout(1500ms)); });
      CHECK(says(problem, "rank " + std::to_string(culprit)));
      CHECK_FALSE(world.broken());
      CHECK(world.device_backend() == "none");
      barrier(world);
      connect_device(world);
      CHECK(world.device_backend() == "nccl");
    });
    CHECK(fake_cuda::live().communicators == 0);
  }
}

TEST_CASE("device failures: a rank may be lost while the communicator is created") {
  const fake_cuda::install fake;
  const std::string cause = cause_of(3, [](const process_group& world) {
    REQUIRE(cuda::runtime().cudaSetDevice(world.rank()) == cudaSuccess);
    if (world.rank() == 2) {
      throw std::runtime_error("gone");
    }
    connect_device(world);
  });
  CHECK(cause == "gone");
  CHECK(fake_cuda::live().communicators == 0);
}

TEST_CASE("device failures: an abort that hangs does not delay the ranks") {
  const short_teardown soon(50ms);
  const fake_cuda::install fake;
  testing::run_ranks(2, [](const process_group& world) {
    const rank_stream stream(world);
    connect_device(world);
    device_buffer<float> data(8);
    fake_cuda::hang_abort(world.rank());
    barrier(world);
    if (world.rank() == 0) {
      const auto hurried = world.with_timeout(100ms);
      all_reduce(data, stream, reduce_op::sum, hurried);
      CHECK_THROWS_AS(synchronize(stream, hurried), timeout_error);
      fake_cuda::release_aborts();
    } else {
      until_broken(world);
    }
  });
}

TEST_CASE("device failures: a group can be dropped while its communicator hangs") {
  const short_teardown soon(50ms);
  const fake_cuda::install fake;
  testing::run_ranks(2, [](const process_group& world) {
    const rank_stream stream(world);
    device_buffer<float> data(8);
    {
      const auto own = world.split(0);
      connect_device(own);
      barrier(world);
      fake_cuda::hang_destroy(world.rank());
      all_reduce(data, stream, reduce_op::sum, own);
      synchronize(stream, own);
      barrier(world);
    }  // says that it is left to itself
    fake_cuda::release_destroys();
    barrier(world);
  });
}

}  // namespace
