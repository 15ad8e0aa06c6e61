// SPDX-License-Identifier: MIT
#include <string>
#include <string_view>
#include <vector>

#include "device_ranks.hpp"

namespace {

using namespace hfcomm;
using namespace device_ranks;

TEST_CASE("device operations: what is wrong on every rank is a usage_error, and the group goes on") {
  at_every_size([](const process_group& world, stream_ref stream) {
    connect_device(world);
    device_buffer<float> data(4);
    device_buffer<float> longer(5);
    CHECK(says(error_of<usage_error>([&] { all_reduce(data, longer, stream, reduce_op::sum, world); }),
               "the output has 5 elements, the input 4"));
    CHECK(says(error_of<usage_error>([&] { broadcast(data, stream, world.size(), world); }), "is not a rank"));
    CHECK(says(error_of<usage_error>([&] { reduce(data, stream, -1, reduce_op::sum, world); }), "root -1"));
    CHECK(says(error_of<usage_error>(
                   [&] { all_reduce(data.span().first(3), data.span().subspan(1, 3), stream, reduce_op::sum, world); }),
               "overlaps"));
    CHECK(
        says(error_of<usage_error>([&] { all_reduce(device_span<float>(nullptr, 4), stream, reduce_op::sum, world); }),
             "at address 0"));
    CHECK(says(error_of<usage_error>([&] { send(data, stream, world.rank(), world); }), "oneself"));
    CHECK(says(error_of<usage_error>([&] { recv(data, stream, world.size(), world); }), "is not a rank"));
    if (world.size() > 1) {
      device_buffer<int> whole(4);
      CHECK(says(error_of<usage_error>([&] { all_reduce(whole, stream, reduce_op::bit_or, world); }), "bitwise or"));
    }
    const std::vector<float> ones(4, 1.0F);
    copy(ones, data, stream);
    all_reduce(data, stream, reduce_op::sum, world);
    CHECK((on_host(data, stream) == std::vector<float>(4, static_cast<float>(world.size()))));
    CHECK_FALSE(world.broken());
  });
}

TEST_CASE("device operations: memory that is none of the device's is named before NCCL sees it") {
  at_every_size([](const process_group& world, stream_ref stream) {
    connect_device(world);
    std::vector<float> ordinary(4, 1.0F);
    CHECK(says(error_of<usage_error>(
                   [&] { all_reduce(device_span<float>(ordinary.data(), 4), stream, reduce_op::sum, world); }),
               "host memory"));
    pinned_buffer<float> pinned(4);
    CHECK(says(error_of<usage_error>([&] { broadcast(device_span<float>(pinned.data(), 4), stream, 0, world); }),
               "pinned host memory"));
    if (world.size() > 1) {
      const auto& api = cuda::runtime();
      REQUIRE(api.cudaSetDevice((world.rank() + 1) % world.size()) == cudaSuccess);
      device_buffer<float> elsewhere(4);
      REQUIRE(api.cudaSetDevice(world.rank()) == cudaSuccess);
      CHECK(says(error_of<usage_error>([&] { all_reduce(elsewhere, stream, reduce_op::sum, world); }),
                 "for which this group has no communicator"));
      device_buffer<float> here(4);
      CHECK(says(error_of<usage_error>([&] { all_reduce(here, elsewhere, stream, reduce_op::sum, world); }),
                 "the input is on device"));
    }
  });
}

TEST_CASE("device operations: two ranks on one GPU are told so") {
  const fake_cuda::install fake;
  testing::run_ranks(3, [](const process_group& world) {
    REQUIRE(cuda::runtime().cudaSetDevice(world.rank() == 2 ? 0 : world.rank()) == cudaSuccess);
    const auto problem = error_of<usage_error>([&] { connect_device(world); });
    CHECK(says(problem, "ranks 0 and 2 use the same GPU"));
    CHECK_FALSE(world.broken());
    REQUIRE(cuda::runtime().cudaSetDevice(world.rank()) == cudaSuccess);
    connect_device(world);
    connect_device(world);  // again: nothing happens
    CHECK(world.device_backend() == "nccl");
  });
  CHECK(fake_cuda::live().communicators == 0);
}

TEST_CASE("device operations: compared over the host plane where that is wanted") {
  const fake_cuda::install fake;
  run_devices(3, [](const process_group& world, stream_ref stream) {
    const auto checked = world.with_device_checks();
    device_buffer<float> data(8);
    const auto count = world.rank() == 2 ? 7U : 8U;
    const auto problem =
        error_of<mismatch_error>([&] { all_reduce(data.span().first(count), stream, reduce_op::sum, checked); });
    CHECK(problem.first_rank() == 0);
    CHECK(problem.second_rank() == 2);
    CHECK(says(problem, "device_misuse_test.cpp"));
    const auto ops = error_of<mismatch_error>([&] {
      world.rank() == 1 ? broadcast(data, stream, 0, checked) : all_reduce(data, stream, reduce_op::sum, checked);
    });
    CHECK(says(ops, "device broadcast"));
    CHECK(says(ops, "device all_reduce"));
    CHECK((error_of<mismatch_error>([&] { broadcast(data, stream, world.rank() % 2, checked); }).second_rank() == 1));
    const auto kinds = error_of<mismatch_error>([&] {
      world.rank() == 1 ? all_reduce(data, stream, reduce_op::max, checked)
                        : all_reduce(data, stream, reduce_op::min, checked);
    });
    CHECK(says(kinds, "8 x float32, min"));
    CHECK(says(kinds, "8 x float32, max"));
    device_buffer<std::int32_t> integers(8);
    const auto types = error_of<mismatch_error>([&] {
      world.rank() == 2 ? all_reduce(integers, stream, reduce_op::max, checked)
                        : all_reduce(data, stream, reduce_op::max, checked);
    });
    CHECK(says(types, "8 x int32"));
    CHECK(types.second_rank() == 2);
    all_reduce(data, stream, reduce_op::min, checked);
    synchronize(stream, world);
  });
}

TEST_CASE("device operations: a rank that refuses its part is named to those that wait for it") {
  const fake_cuda::install fake;
  testing::run_ranks(3, [](const process_group& world) {
    const rank_stream stream(world);
    connect_device(world);
    device_buffer<float> data(8);
    barrier(world);
    if (world.rank() == 1) {
      CHECK(says(error_of<usage_error>([&] { all_reduce(data, data.span().first(3), stream, reduce_op::sum, world); }),
                 "the output has 3 elements"));
    } else {
      all_reduce(data, stream, reduce_op::sum, world);
      const auto problem = error_of<peer_error>([&] { synchronize(stream, world); });
      CHECK(problem.peer() == 1);
      CHECK(says(problem, "the output has 3 elements"));
    }
    if (world.rank() != 1) {
      CHECK(world.broken());
      CHECK(error_of<peer_error>([&] { all_reduce(data, stream, reduce_op::sum, world); }).peer() == 1);
    }
  });
  CHECK(fake_cuda::live().communicators == 0);
}

TEST_CASE("device operations: what the program lacks is said") {
  const auto factory = hfcomm::detail::device_engines().exchange(nullptr);
  testing::run_ranks(2, [](const process_group& world) {
    device_buffer<float> none;
    const auto problem =
        error_of<usage_error>([&] { all_reduce(none, stream_ref::legacy_default(), reduce_op::sum, world); });
    CHECK(says(problem, "include <hfcomm/nccl.hpp>"));
  });
  hfcomm::detail::device_engines().store(factory);
}

}  // namespace
