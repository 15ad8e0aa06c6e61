// SPDX-License-Identifier: MIT
#include <chrono>
#include <string>
#include <vector>

#include "device_ranks.hpp"

namespace {

using namespace hfcomm;
using namespace device_ranks;
using namespace std::chrono_literals;

void check_sum(const process_group& group, stream_ref stream) {
  auto data = on_device(std::vector<int>(5, 1), stream);
  all_reduce(data, stream, reduce_op::sum, group);
  CHECK((on_host(data, stream) == std::vector<int>(5, group.size())));
}

TEST_CASE("device groups: a subgroup of a connected group is connected by splitting its communicator") {
  at_every_size(
      [](const process_group& world, stream_ref stream) {
        connect_device(world);
        barrier(world);
        const auto ids = fake_cuda::calls("ncclGetUniqueId");
        const auto inits = fake_cuda::calls("ncclCommInitRankConfig");
        barrier(world);
        // In the opposite order: the rank within the part is the group's, not NCCL's guess.
        const auto half = world.split(world.rank() % 2, -world.rank());
        CHECK(half.device_backend() == (half.size() == 1 ? "cuda" : "nccl"));
        auto data = on_device(std::vector<int>(3, half.rank()), stream);
        device_buffer<int> all(3 * as_index(half.size()));
        all_gather(data, all, stream, half);
        CHECK(on_host(all, stream).back() == half.size() - 1);
        check_sum(half, stream);
        const auto quarter = half.split(half.rank() % 2);  // of a part
        check_sum(quarter, stream);
        check_sum(world, stream);
        const auto first = world.subgroup({1, 0});
        CHECK(first.has_value() == (world.rank() < 2));
        if (first) {
          CHECK(first->device_backend() == "nccl");
          check_sum(*first, stream);
        }
        const auto one = world.subgroup({0});
        if (one) {
          check_sum(*one, stream);
        }
        barrier(world);
        CHECK(fake_cuda::calls("ncclGetUniqueId") == ids);
        CHECK(fake_cuda::calls("ncclCommInitRankConfig") == inits);
        barrier(world);
      },
      2);
}

TEST_CASE("device groups: a rank may use several devices") {
  const fake_cuda::install fake;
  testing::run_ranks(2, [](const process_group& world) {
    const auto& api = cuda::runtime();
    for (const int first : {0, 2, 4}) {
      REQUIRE(api.cudaSetDevice(first + world.rank()) == cudaSuccess);
      connect_device(world);
      connect_device(world);  // changes nothing
    }
    CHECK(fake_cuda::communicators().size() == 2 * 3 * 2);  // each is made by two
    for (const int first : {4, 0, 2}) {
      REQUIRE(api.cudaSetDevice(first + world.rank()) == cudaSuccess);
      cudaStream_t stream = nullptr;
      REQUIRE(api.cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0) == cudaSuccess);
      {
        barrier(stream, world);  // knows the device from the thread alone
        auto data = on_device(std::vector<int>{world.rank(), 10 + first}, stream);
        all_reduce(data, stream, reduce_op::sum, world);
        CHECK((on_host(data, stream) == std::vector<int>{1, 20 + 2 * first}));
      }
      REQUIRE(api.cudaStreamDestroy(stream) == cudaSuccess);
    }
    REQUIRE(api.cudaSetDevice(6 + world.rank()) == cudaSuccess);
    device_buffer<int> elsewhere(1);
    const auto problem =
        error_of<usage_error>([&] { all_reduce(elsewhere, stream_ref::legacy_default(), reduce_op::sum, world); });
    CHECK(says(problem, "it has one for device " + std::to_string(world.rank())));
  });
  CHECK(fake_cuda::live() == fake_cuda::live_objects{});
}

TEST_CASE("device groups: a split that fails on one rank fails on all, and the group stays usable") {
  const fake_cuda::install fake;
  run_devices(3, [](const process_group& world, stream_ref stream) {
    connect_device(world);
    if (world.rank() == 0) {
      fake_cuda::fail_call("ncclCommSplit", 1, ncclSystemError, 2);
    }
    barrier(world);
    const auto problem = error_of<engine_error>([&] { (void)world.with_timeout(300ms).split(0); });
    CHECK(std::string(problem.what()).find("rank 2") != std::string::npos);
    CHECK_FALSE(world.broken());
    check_sum(world, stream);
    const auto part = world.split(0);
    check_sum(part, stream);
    check_sum(part.split(0), stream);
    check_sum(world.split(world.rank() == 0 ? 0 : 1), stream);
  });
}

}  // namespace
