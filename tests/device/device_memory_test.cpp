// SPDX-License-Identifier: MIT
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device_ranks.hpp"

namespace {

using namespace hfcomm;
using namespace device_ranks;
using namespace std::chrono_literals;

TEST_CASE("registered_buffer: operations work on it, and nothing of it is left") {
  at_every_size([](const process_group& world, stream_ref stream) {
    registered_buffer<float> data(1000, world);
    CHECK(data.size() == 1000);
    to_device(std::vector<float>(1000, 2.0F), data, stream);
    all_reduce(data, stream, reduce_op::sum, world);
    CHECK((on_host(data, stream) == std::vector<float>(1000, 2.0F * static_cast<float>(world.size()))));
    registered_buffer<float> other(std::move(data));
    CHECK(data.empty());
    CHECK(other.size() == 1000);
    other = registered_buffer<float>(10, world);
    CHECK(other.size() == 10);
    const registered_buffer<float> none(0, world);
    CHECK(none.data() == nullptr);
    barrier(world);
    if (world.size() > 1) {
      CHECK(fake_cuda::calls("ncclCommWindowRegister") == 2U * static_cast<unsigned>(world.size()));
    }
    barrier(world);
  });
}

TEST_CASE("registered_buffer: it may outlive its group, also a lost one") {
  const fake_cuda::install fake;
  std::vector<std::optional<registered_buffer<int>>> kept(2);
  testing::run_ranks(2, [&](const process_group& world) {
    REQUIRE(cuda::runtime().cudaSetDevice(world.rank()) == cudaSuccess);
    kept[as_index(world.rank())].emplace(7, world);
  });
  CHECK(fake_cuda::live().communicators == 0);
  CHECK(fake_cuda::live().registrations == 0);
  CHECK(fake_cuda::live().allocations == 2);
  kept.clear();
  CHECK(fake_cuda::live().allocations == 0);

  run_devices(2, [](const process_group& world, stream_ref stream) {
    registered_buffer<int> data(7, world);
    if (world.rank() == 0) {
      all_reduce(data, stream, reduce_op::sum, world);
      CHECK_THROWS_AS(synchronize(stream, world.with_timeout(50ms)), timeout_error);
    } else {
      until_broken(world);
    }
  });
}

TEST_CASE(
    "registered_buffer: a failure on one rank is an error on all, and one before NCCL's part keeps the group usable") {
  const fake_cuda::install fake;
  run_devices(3, [](const process_group& world, stream_ref stream) {
    connect_device(world);
    for (const char* function : {"ncclMemAlloc", "ncclCommWindowRegister"}) {
      INFO(function);
      if (world.rank() == 0) {
        fake_cuda::fail_call(function, 1, ncclSystemError, 1);
      }
      barrier(world);
      // Where rank 1 does not come to it, the others would wait in NCCL for its part.
      const bool registers = std::string_view(function) == "ncclCommWindowRegister";
      if (!registers) {
        const auto problem = error_of<engine_error>([&] { (void)registered_buffer<int>(5, world); });
        CHECK(says(problem, "on rank 1"));
        CHECK(says(problem, "ncclMemAlloc"));
        CHECK_FALSE(world.broken());
        registered_buffer<int> again(5, world);
        to_device(std::vector<int>(5, 1), again, stream);
        all_reduce(again, stream, reduce_op::sum, world);
        CHECK((on_host(again, stream) == std::vector<int>(5, 3)));
      } else {
        const auto problem =
            error_of<engine_error>([&] { (void)registered_buffer<int>(5, world.with_timeout(200ms)); });
        CHECK(says(problem, "on rank 1"));
        CHECK(says(problem, "registering it"));
        // NCCL had begun: its communicator is given up, on every rank.
        auto data = on_device(std::vector<int>(5, 1), stream);
        CHECK(says(error_of<engine_error>([&] { all_reduce(data, stream, reduce_op::sum, world); }), "registered"));
      }
    }
  });
}

TEST_CASE("registered_buffer: it works with an NCCL without windows") {
  const fake_cuda::install fake;
  auto old = fake_cuda::nccl_table();
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  old.ncclCommWindowRegister = nullptr;
  old.ncclCommWindowDeregister = nullptr;
#endif
  cuda::use_nccl(&old);
  run_devices(2, [](const process_group& world, stream_ref stream) {
    registered_buffer<int> data(5, world);
    to_device(std::vector<int>(5, 1), data, stream);
    all_reduce(data, stream, reduce_op::sum, world);
    CHECK((on_host(data, stream) == std::vector<int>(5, 2)));
  });
  CHECK(fake_cuda::calls("ncclCommRegister") == 2);
  CHECK(fake_cuda::calls("ncclCommDeregister") == 2);
}

TEST_CASE("registered_buffer: its group may end while an operation on it is in flight") {
  const fake_cuda::install fake;
  run_devices(2, [](const process_group& world, stream_ref stream) {
    registered_buffer<int> data;
    {
      const auto part = world.split(0);
      data = registered_buffer<int>(1000, part);
      to_device(std::vector<int>(1000, 1), data, stream);
      fake_cuda::launch(stream.get(), [] { std::this_thread::sleep_for(20ms); });
      all_reduce(data, stream, reduce_op::sum, part);
    }
    CHECK((on_host(data, stream) == std::vector<int>(1000, 2)));
  });
}

TEST_CASE("registered_buffer: different sizes and an open nccl_group_scope are errors on every rank") {
  const fake_cuda::install fake;
  run_devices(2, [](const process_group& world, stream_ref /*stream*/) {
    const auto problem =
        error_of<mismatch_error>([&] { (void)registered_buffer<int>(as_index(world.rank()) + 5, world); });
    CHECK(says(problem, "device_memory_test.cpp"));
    CHECK_FALSE(world.broken());
    if (world.rank() == 1) {
      nccl_group_scope scope(world);
      const auto held = error_of<engine_error>([&] { (void)registered_buffer<int>(5, world); });
      CHECK(says(held, "nccl_group_scope"));
    } else {
      const auto held = error_of<engine_error>([&] { (void)registered_buffer<int>(5, world); });
      CHECK(says(held, "on rank 1"));
    }
    CHECK_FALSE(world.broken());
  });
}

TEST_CASE("registered_buffer: a rank that never calls or dies is named") {
  const fake_cuda::install fake;
  run_devices(2, [](const process_group& world, stream_ref /*stream*/) {
    connect_device(world);
    if (world.rank() == 0) {
      const auto problem = error_of<timeout_error>([&] { (void)registered_buffer<int>(5, world.with_timeout(100ms)); });
      CHECK(problem.missing() == std::vector<int>{1});
    } else {
      until_broken(world);
    }
  });
  const auto cause = cause_of(2, [](const process_group& world) {
    REQUIRE(cuda::runtime().cudaSetDevice(world.rank()) == cudaSuccess);
    connect_device(world);
    if (world.rank() == 1) {
      throw std::runtime_error("gone");
    }
    CHECK_THROWS_AS((void)registered_buffer<int>(5, world), peer_error);
  });
  CHECK(cause.find("gone") != std::string::npos);
}

}  // namespace
