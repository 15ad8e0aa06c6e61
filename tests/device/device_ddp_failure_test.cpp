// SPDX-License-Identifier: MIT
#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include <hfcomm/ddp.hpp>

#include "device_ranks.hpp"

namespace {

using namespace hfcomm;
using namespace device_ranks;
using namespace std::chrono_literals;

/// Two parameters, each in a bucket of its own.
struct two_parameters {
  device_buffer<float> values{40};
  device_buffer<float> gradients{40};

  [[nodiscard]] std::vector<ddp_parameter> parameters() {
    return {named_parameter("a", values.span().first(20), gradients.span().first(20)),
            named_parameter("b", values.span().subspan(20, 20), gradients.span().subspan(20, 20))};
  }
};

ddp_options one_each(stream_ref stream) {
  ddp_options options;
  options.first_bucket_bytes = options.bucket_bytes = 80;
  options.stream = stream;
  return options;
}

TEST_CASE("ddp on devices: a parameter that never became ready is an error on every rank") {
  const fake_cuda::install fake;
  run_devices(3, [](const process_group& world, stream_ref stream) {
    two_parameters model;
    distributed_data_parallel ddp(model.parameters(), {}, one_each(stream), world);
    ddp.begin_forward();
    ddp.mark_ready(1);
    barrier(world);
    if (world.rank() == 1) {
      const auto problem = error_of<usage_error>([&] { ddp.finish(); });
      CHECK(says(problem, "never became ready"));
      CHECK(says(problem, "\"a\""));
      until_broken(ddp.device_group());
      return;
    }
    // Another rank may have found it first, and broken the group.
    const auto problem = error_of<peer_error>([&] {
      ddp.mark_ready(0);
      ddp.finish();
      synchronize(stream, ddp.device_group());
    });
    CHECK(problem.peer() == 1);
    CHECK(says(problem, "never became ready"));
    CHECK_FALSE(world.broken());
    CHECK_THROWS_AS(barrier(stream, ddp.device_group()), peer_error);
  });
}

TEST_CASE("ddp on devices: an abandoned pass is an error on the others in synchronize") {
  const fake_cuda::install fake;
  run_devices(2, [](const process_group& world, stream_ref stream) {
    two_parameters model;
    distributed_data_parallel ddp(model.parameters(), {}, one_each(stream), world);
    ddp.begin_forward();
    if (world.rank() == 0) {
      try {
        throw std::runtime_error("a bad batch");
      } catch (const std::runtime_error&) {
        ddp.abandon_pass();
      }
      until_broken(ddp.device_group());
      CHECK_THROWS_AS(ddp.mark_ready(1), error);
      return;
    }
    ddp.mark_ready(1);
    ddp.mark_ready(0);
    ddp.finish();
    CHECK(says(error_of<peer_error>([&] { synchronize(stream, ddp.device_group()); }), "a bad batch"));
  });
}

TEST_CASE("ddp on devices: an abandoned pass is an error on the others where their hosts wait") {
  for (const bool unused : {false, true}) {
    const fake_cuda::install fake;
    run_devices(2, [&](const process_group& world, stream_ref stream) {
      two_parameters model;
      auto options = one_each(stream);
      options.find_unused_parameters = unused;
      // Without unused parameters: with device checks.
      distributed_data_parallel ddp(model.parameters(), {}, options, world.with_device_checks(!unused));
      ddp.begin_forward();
      if (world.rank() == 0) {
        ddp.abandon_pass("a bad batch");
        return;
      }
      const auto problem = error_of<peer_error>([&] {
        ddp.mark_ready(1);
        ddp.mark_ready(0);
        ddp.finish();
      });
      CHECK(says(problem, "a bad batch"));
    });
  }
}

TEST_CASE("ddp on devices: a gradient in host memory that must be copied is an error on every rank") {
  const fake_cuda::install fake;
  run_devices(2, [](const process_group& world, stream_ref stream) {
    two_parameters model;
    std::vector<float> host(20);
    auto parameters = model.parameters();
    if (world.rank() == 0) {
      parameters[0].gradient = std::as_writable_bytes(std::span(host));
    }
    auto options = one_each(stream);
    options.first_bucket_bytes = options.bucket_bytes = 1000;  // both together
    distributed_data_parallel ddp(parameters, {}, options, world);
    ddp.mark_ready(0);
    if (world.rank() == 0) {
      CHECK(says(error_of<usage_error>([&] { ddp.mark_ready(1); }), "host memory"));
      until_broken(ddp.device_group());
      return;
    }
    ddp.mark_ready(1);
    ddp.finish();
    CHECK(says(error_of<peer_error>([&] { synchronize(stream, ddp.device_group()); }), "host memory"));
  });
}

TEST_CASE("ddp on devices: a rank without memory for its buckets is an error on every rank") {
  const fake_cuda::install fake;
  run_devices(2, [](const process_group& world, stream_ref stream) {
    two_parameters model;
    auto parameters = model.parameters();
    std::swap(parameters[0].gradient, parameters[1].gradient);  // in the wrong order: to be copied
    auto options = one_each(stream);
    options.first_bucket_bytes = options.bucket_bytes = 1000;
    connect_device(world);
    if (world.rank() == 0) {
      // The first is the split communicator's.
      fake_cuda::fail_call("cudaMalloc", 2, cudaErrorMemoryAllocation, 1);
    }
    barrier(world);
    const auto construct = [&] { const distributed_data_parallel ddp(parameters, {}, options, world); };
    if (world.rank() == 1) {
      CHECK(says(error_of<engine_error>(construct), "out of memory"));
    } else {
      const auto problem = error_of<peer_error>(construct);
      CHECK(says(problem, "out of memory"));
      CHECK(says(problem, "no memory for its buckets"));
    }
    CHECK_FALSE(world.broken());
  });
}

TEST_CASE("ddp on devices: a pass may be abandoned after everything was marked, and training continues") {
  const fake_cuda::install fake;
  run_devices(2, [](const process_group& world, stream_ref stream) {
    two_parameters model;
    distributed_data_parallel ddp(model.parameters(), {}, one_each(stream), world);
    for (int round = 0; round < 3; ++round) {
      to_device(std::vector<float>(40, static_cast<float>(world.rank())), model.gradients, stream);
      ddp.begin_forward();
      ddp.mark_ready(1);
      ddp.mark_ready(0);
      round == 1 ? ddp.abandon_pass("changed its mind") : ddp.finish();
      CHECK((on_host(model.gradients, stream) == std::vector<float>(40, 0.5F)));
    }
  });
}

TEST_CASE("ddp on devices: a rank that dies frees the others") {
  const fake_cuda::install fake;
  const auto cause = cause_of(3, [](const process_group& world) {
    const rank_stream stream(world);
    two_parameters model;
    distributed_data_parallel ddp(model.parameters(), {}, one_each(stream), world);
    ddp.begin_forward();
    ddp.mark_ready(1);
    barrier(world);
    if (world.rank() == 2) {
      throw std::runtime_error("out of luck");
    }
    // Another rank may have found it first, and broken the group.
    const auto problem = error_of<peer_error>([&] {
      ddp.mark_ready(0);
      ddp.finish();
      synchronize(stream, ddp.device_group());
    });
    CHECK(problem.peer() == 2);
    CHECK_CONTAINS(problem.what(), "out of luck");
    CHECK_THROWS_AS(ddp.mark_ready(1), error);
  });
  CHECK(cause.find("out of luck") != std::string::npos);
}

TEST_CASE("ddp on devices: a watch frees a program that waits by other means") {
  const fake_cuda::install fake;
  run_devices(2, [](const process_group& world, stream_ref stream) {
    two_parameters model;
    distributed_data_parallel ddp(model.parameters(), {}, one_each(stream), world);
    const device_watch watch(50ms, ddp.device_group());
    ddp.begin_forward();
    // Rank 1 marks nothing, so no work of its own can time out instead.
    if (world.rank() == 0) {
      // A slow machine may find the time-out in an earlier call.
      const auto problem = error_of<timeout_error>([&] {
        ddp.mark_ready(1);
        ddp.mark_ready(0);
        ddp.finish();
        CHECK(cuda::runtime().cudaStreamSynchronize(stream.get()) == cudaSuccess);
        ddp.mark_ready(1);
      });
      CHECK(says(problem, "rank 1"));
    } else {
      until_broken(ddp.device_group());
    }
  });
}

TEST_CASE("ddp on devices: with device checks, ranks in different passes get a mismatch_error") {
  const fake_cuda::install fake;
  run_devices(2, [](const process_group& world, stream_ref stream) {
    two_parameters model;
    distributed_data_parallel ddp(model.parameters(), {}, one_each(stream), world.with_device_checks());
    if (world.rank() == 1) {
      const auto off = ddp.no_sync();  // which rank 0 does not have
      ddp.finish();
    }
    const auto problem = error_of<mismatch_error>([&] { ddp.mark_ready(1); });
    CHECK(says(problem, "distributed_data_parallel"));
    CHECK(says(problem, "device_ddp_failure_test.cpp"));
  });
}

TEST_CASE("ddp on devices: models that differ are an error on every rank") {
  const fake_cuda::install fake;
  run_devices(2, [](const process_group& world, stream_ref stream) {
    two_parameters model;
    std::vector<float> host(20);
    auto mixed = model.parameters();
    mixed.push_back(named_parameter("h", host, host));
    const auto problem =
        error_of<usage_error>([&] { const distributed_data_parallel ddp(mixed, {}, one_each(stream), world); });
    CHECK(says(problem, "\"a\" is on a device"));
    CHECK(says(problem, "\"h\" is not"));

    std::vector<ddp_parameter> one = {model.parameters().front()};
    if (world.rank() == 1) {
      one = {named_parameter("a", host, host)};
    }
    const auto differ =
        error_of<mismatch_error>([&] { const distributed_data_parallel ddp(one, {}, one_each(stream), world); });
    CHECK(says(differ, "\"a\" (20 x float32 on a device)"));
    CHECK(says(differ, "\"a\" (20 x float32)"));

    CHECK(says(error_of<usage_error>([&] { all_reduce_params(model.parameters(), reduce_op::sum, 100, world); }),
               "on a device"));
    const distributed_data_parallel on_the_host({named_parameter("h", host, host)}, {}, {}, world);
    CHECK(says(error_of<usage_error>([&] { (void)on_the_host.device_group(); }), "host memory"));
    CHECK(says(error_of<usage_error>([&] {
                 const distributed_data_parallel ddp({named_parameter("h", host, host)},
                                                     {named_buffer("b", model.values)}, {}, world);
               }),
               "buffer \"b\" is on a device"));
    CHECK_FALSE(world.broken());
  });
}

TEST_CASE("ddp on devices: a gradient in host memory and a mark inside an nccl_group_scope are usage_errors") {
  const fake_cuda::install fake;
  run_devices(2, [](const process_group& world, stream_ref stream) {
    two_parameters model;
    distributed_data_parallel ddp(model.parameters(), {}, one_each(stream), world);
    {
      nccl_group_scope scope(world);
      CHECK(says(error_of<usage_error>([&] { ddp.mark_ready(1); }), "nccl_group_scope"));
    }
    // The bucket is not forgotten.
    to_device(std::vector<float>(40, static_cast<float>(world.rank())), model.gradients, stream);
    ddp.mark_ready(0);
    ddp.finish();
    CHECK((on_host(model.gradients, stream) == std::vector<float>(40, 0.5F)));
  });
  run_devices(2, [](const process_group& world, stream_ref stream) {
    two_parameters model;
    std::vector<float> host(20);
    auto parameters = model.parameters();
    parameters[1].gradient = std::as_writable_bytes(std::span(host));
    distributed_data_parallel ddp(parameters, {}, one_each(stream), world);
    CHECK(says(error_of<usage_error>([&] { ddp.mark_ready(1); }), "host memory"));
  });
}

}  // namespace
