// SPDX-License-Identifier: MIT
// NCCL's groups collect the thread's calls: failures while a group is open.
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "device_ranks.hpp"

namespace {

using namespace hfcomm;
using namespace device_ranks;
using namespace std::chrono_literals;

TEST_CASE("nccl_group_scope: no call is launched after a rank is lost inside it") {
  const fake_cuda::install fake;
  const std::string cause = cause_of(3, [](const process_group& world) {
    const rank_stream stream(world);
    connect_device(world);
    device_buffer<float> data(8);
    barrier(world);
    if (world.rank() == 2) {
      throw std::runtime_error("gone");
    }
    const auto work = [&] {
      const nccl_group_scope together(world);
      all_reduce(data, stream, reduce_op::sum, world);
      CHECK_THROWS_AS(barrier(world), peer_error);
      CHECK_THROWS_AS(all_reduce(data, stream, reduce_op::sum, world), peer_error);
      throw std::logic_error("left");
    };
    CHECK_THROWS_AS(work(), std::logic_error);
    CHECK(cuda::runtime().cudaStreamSynchronize(stream.get()) == cudaSuccess);
    CHECK_THROWS_AS(all_reduce(data, stream, reduce_op::sum, world), peer_error);
  });
  CHECK(cause == "gone");
  CHECK(fake_cuda::live().communicators == 0);
}

TEST_CASE("nccl_group_scope: a watch that breaks the group waits until the collected calls are dropped") {
  const fake_cuda::install fake;
  testing::run_ranks(2, [](const process_group& world) {
    const rank_stream stream(world);
    connect_device(world);
    device_buffer<float> data(8);
    barrier(world);
    if (world.rank() == 0) {
      const device_watch watch(50ms, world);
      all_reduce(data, stream, reduce_op::sum, world);
      {
        nccl_group_scope together(world);
        device_buffer<float> more(8);
        all_reduce(more, stream, reduce_op::sum, world);
        until_broken(world);
        CHECK_THROWS_AS(all_reduce(more, stream, reduce_op::sum, world), timeout_error);
        CHECK_THROWS_AS(together.end(), timeout_error);
      }
      CHECK(cuda::runtime().cudaStreamSynchronize(stream.get()) == cudaSuccess);
    } else {
      until_broken(world);
    }
  });
  CHECK(fake_cuda::live().communicators == 0);
}

TEST_CASE("nccl_group_scope: an operation that cannot be collected is refused, for every group") {
  const fake_cuda::install fake;
  run_devices(2, [](const process_group& world, stream_ref stream) {
    const auto other = world.split(0);
    const auto third = world.split(0);
    connect_device(world);
    connect_device(other);
    device_buffer<float> data(8);
    {
      const nccl_group_scope together(world);
      CHECK_THROWS_AS((void)nccl_group_scope(other), usage_error);
      CHECK_THROWS_AS((void)all_reduce_async(data, stream, reduce_op::sum, other), usage_error);
      CHECK_THROWS_AS(connect_device(third), engine_error);
      CHECK_THROWS_AS((void)world.split(0), engine_error);
      all_reduce(data, stream, reduce_op::sum, other);  // another group in the same scope
      all_reduce(data, stream, reduce_op::sum, world);
    }
    synchronize(stream, world);
    connect_device(third);
    (void)world.split(0);
  });
}

TEST_CASE("nccl_group_scope: 1500 messages in each direction stay together") {
  const fake_cuda::install fake;
  run_devices(2, [](const process_group& world, stream_ref stream) {
    connect_device(world);
    auto mine = on_device(std::vector<int>(1500, world.rank()), stream);
    device_buffer<int> theirs(1500);
    {
      const nccl_group_scope together(world);
      for (std::size_t index = 0; index < 1500; ++index) {
        send(mine.span().subspan(index, 1), stream, 1 - world.rank(), world);
      }
      for (std::size_t index = 0; index < 1500; ++index) {
        recv(theirs.span().subspan(index, 1), stream, 1 - world.rank(), world);
      }
    }
    CHECK((on_host(theirs, stream) == std::vector<int>(1500, 1 - world.rank())));
  });
}

TEST_CASE("nccl_group_scope: an error that its destructor could not throw is thrown by the next device operation") {
  const fake_cuda::install fake;
  testing::run_ranks(2, [](const process_group& world) {
    const rank_stream stream(world);
    connect_device(world);
    device_buffer<float> data(8);
    barrier(world);
    if (world.rank() == 1) {
      fake_cuda::fail_call("ncclGroupEnd", 1, ncclInvalidUsage, 1);
      {
        const nccl_group_scope together(world);
      }
      CHECK_THROWS_AS(all_reduce(data, stream, reduce_op::sum, world), usage_error);
    } else {
      all_reduce(data, stream, reduce_op::sum, world);
      CHECK(error_of<peer_error>([&] { synchronize(stream, world); }).peer() == 1);
    }
  });
}

TEST_CASE("connect_device: a rank without a device is an error on every rank") {
  const fake_cuda::install fake;
  testing::run_ranks(3, [](const process_group& world) {
    REQUIRE(cuda::runtime().cudaSetDevice(world.rank()) == cudaSuccess);
    if (world.rank() == 1) {
      fake_cuda::fail_call("cudaGetDevice", 1, cudaErrorNoDevice, 1);
    }
    barrier(world);
    const auto problem = error_of<engine_error>([&] { connect_device(world); });
    CHECK(std::string(problem.what()).find("rank 1 has no device plane") != std::string::npos);
    CHECK_FALSE(world.broken());
    connect_device(world);
    barrier(world);
    const auto ids = fake_cuda::calls("ncclGetUniqueId");
    barrier(world);
    connect_device(world);
    barrier(world);
    CHECK(fake_cuda::calls("ncclGetUniqueId") == ids);
  });
}

TEST_CASE("device operations: an error of this rank is reported to the others, even after a later one") {
  const fake_cuda::install fake;
  testing::run_ranks(2, [](const process_group& world) {
    const rank_stream stream(world);
    connect_device(world);
    device_buffer<float> data(8);
    const auto refuse = [&] {
      CHECK_THROWS_AS(all_reduce(data, data.span().first(3), stream, reduce_op::sum, world), usage_error);
    };
    refuse();
    if (world.rank() == 0) {
      all_reduce(data, stream, reduce_op::sum, world);
    } else {
      refuse();
    }
    refuse();
    barrier(world);
    if (world.rank() == 0) {
      CHECK(error_of<peer_error>([&] { synchronize(stream, world); }).peer() == 1);
    }
  });
}

TEST_CASE("synchronize: before the group is connected it waits for this rank's work alone") {
  const fake_cuda::install fake;
  run_devices(2, [](const process_group& world, stream_ref stream) {
    if (world.rank() == 0) {
      bool done = false;
      fake_cuda::launch(stream.get(), [&] { done = true; });
      synchronize(stream, world);
      CHECK(done);
    }
    CHECK(world.device_backend() == "none");
  });
}

}  // namespace
