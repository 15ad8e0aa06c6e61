// SPDX-License-Identifier: MIT
// Gradients on devices that are averaged on the CPU (ddp_options::host_reduce), over the test double of CUDA.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <hfcomm/ddp.hpp>

#include "device_ranks.hpp"
#include "host_reduce_model.hpp"

namespace {

using namespace hfcomm;
using namespace device_ranks;
using namespace std::chrono_literals;
using host_reduce::pair_of_models;
using host_reduce::staged;

/// Numbers of elements whose buckets have several chunks of 2 MiB, of which the last ones are not full.
const std::vector<std::size_t> sizes_of_many_chunks{5, 0, 700'003, 64, 1, 900'001};
const std::vector<std::size_t> sizes_below_a_chunk{5, 0, 33, 64, 1};

template <class T>
void check_bits(const process_group& world, const std::vector<std::size_t>& sizes, bool one_piece,
                const ddp_options& options) {
  pair_of_models<T> models(sizes, one_piece, world, options, options.stream);
  CHECK(models.has_values_of_rank_0());
  for (int pass = 1; pass <= 3; ++pass) {
    models.fill(pass);
    models.pass();
    CHECK(models.are_equal());
  }
  CHECK(models.on_device().finished_passes() == 3);
  CHECK(models.on_device().last_pass().buckets == models.on_device().bucket_count());
}

TEST_CASE("host_reduce: averages have the bits of gradients in host memory, in every type") {
  at_every_size([](const process_group& world, stream_ref stream) {
    for (const bool one_piece : {true, false}) {
      check_bits<float>(world, sizes_below_a_chunk, one_piece, staged(stream, true));
      check_bits<double>(world, sizes_below_a_chunk, one_piece, staged(stream, true));
      check_bits<float16>(world, sizes_below_a_chunk, one_piece, staged(stream, true));
      check_bits<bfloat16>(world, sizes_below_a_chunk, one_piece, staged(stream, true));
    }
  });
}

TEST_CASE("host_reduce: buckets may have many chunks, which no parameter ends with") {
  at_every_size([](const process_group& world, stream_ref stream) {
    check_bits<float>(world, sizes_of_many_chunks, world.rank() % 2 == 0, staged(stream, false));
  });
}

TEST_CASE("host_reduce: a kernel that follows finish sees the averages, however long the copies take") {
  at_every_size([](const process_group& world, stream_ref stream) {
    pair_of_models<float> models({1000, 600'000}, false, world, staged(stream, false), stream);
    fake_cuda::set_copy_time(3ms);
    for (int pass = 0; pass < 3; ++pass) {
      models.fill(pass);
      models.pass_with_kernels();
      const auto seen = models.copy_on_stream();  // as an optimizer's kernel, put on the stream at once
      models.clear_on_stream();                   // and the next pass's first one
      CHECK(models.equals_host(seen));
    }
  });
}

TEST_CASE("host_reduce: NCCL is not called, and several ranks may share a GPU") {
  for (const int ranks : multi_rank::rank_counts_from(2)) {
    const fake_cuda::install fake;
    testing::run_ranks(ranks, [](const process_group& world) {
      REQUIRE(cuda::runtime().cudaSetDevice(0) == cudaSuccess);
      cudaStream_t stream = nullptr;
      REQUIRE(cuda::runtime().cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0) == cudaSuccess);
      check_bits<float>(world, sizes_below_a_chunk, true, staged(stream_ref(stream), true));
      CHECK(cuda::runtime().cudaStreamDestroy(stream) == cudaSuccess);
    });
    for (const char* function : {"ncclGetVersion", "ncclGetUniqueId", "ncclCommInitRankConfig", "ncclAllReduce",
                                 "ncclBroadcast", "ncclGroupStart"}) {
      CHECK_MESSAGE(fake_cuda::calls(function) == 0, function);
    }
    CHECK(fake_cuda::live().registered_ranges == 0);
    CHECK(fake_cuda::illegal_accesses() == 0);
  }
}

TEST_CASE("host_reduce: each pass begins with rank 0's buffers, on the device and in host memory") {
  at_every_size([](const process_group& world, stream_ref stream) {
    device_buffer<int> many(700'001);
    std::vector<int> on_the_host(2);
    pair_of_models<float> models({4}, true, world, staged(stream, true), stream,
                                 {named_buffer("many", many), named_buffer("host", on_the_host)});
    fake_cuda::set_copy_time(1ms);
    for (int round = 0; round < 2; ++round) {
      to_device(std::vector<int>(many.size(), world.rank() + round), many, stream);
      on_the_host.assign(2, world.rank() + 5);
      models.fill(round);
      models.pass();
      CHECK((on_host(many, stream) == std::vector<int>(many.size(), round)));
      CHECK((on_the_host == std::vector<int>(2, 5)));
    }
  });
}

TEST_CASE("host_reduce: gradients of its own memory are averaged, and buckets filled anew") {
  at_every_size([](const process_group& world, stream_ref stream) {
    for (const bool find_unused : {false, true}) {
      const std::vector<std::size_t> sizes{40, 0, 60, 30};
      device_buffer<float> values(130);
      std::vector<ddp_parameter> parameters;
      for (std::size_t index = 0, offset = 0; index < sizes.size(); offset += sizes[index++]) {
        parameters.push_back(named_parameter("p" + std::to_string(index), values.span().subspan(offset, sizes[index])));
      }
      auto options = staged(stream, true);
      options.find_unused_parameters = find_unused;
      distributed_data_parallel ddp(std::move(parameters), {}, options, world);
      const auto gradient = [&](std::size_t index) {
        const auto bytes = ddp.gradient(index);
        return device_span<float>(reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float));
      };
      CHECK((on_host(gradient(2), stream) == std::vector<float>(60)));
      for (int pass = 0; pass < 4; ++pass) {
        ddp.begin_forward();
        for (const std::size_t index : {0U, 2U, 3U, 1U}) {  // not the reverse order
          to_device(std::vector<float>(sizes[index], static_cast<float>(world.rank() + pass)), gradient(index), stream);
          ddp.mark_ready(index);
        }
        ddp.finish();
        for (std::size_t index = 0; index < sizes.size(); ++index) {
          const float mean = static_cast<float>(world.size() - 1) / 2.0F + static_cast<float>(pass);
          CHECK((on_host(gradient(index), stream) == std::vector<float>(sizes[index], mean)));
        }
        CHECK(ddp.last_pass().bytes == 130 * sizeof(float));
        if (world.size() > 1) {
          CHECK(ddp.last_pass().copied_bytes == 130 * sizeof(float));
        }
      }
    }
  });
}

TEST_CASE("host_reduce: unused parameters count as zero, and one that no rank used is unchanged") {
  at_every_size([](const process_group& world, stream_ref stream) {
    auto options = staged(stream, false);
    options.find_unused_parameters = true;
    pair_of_models<float> models({7, 600'000, 1'200'000}, true, world, options, stream);
    fake_cuda::set_copy_time(1ms);
    for (int round = 0; round < 2; ++round) {
      models.fill(round);
      models.pass(world.rank() == world.size() - 1 ? std::vector<std::size_t>{1, 2} : std::vector<std::size_t>{2});
      CHECK(models.are_equal());
      CHECK_FALSE(models.on_device().used(0));
      CHECK(models.on_device().used(1));
    }
  });
}

TEST_CASE("host_reduce: a static graph, no_sync and accumulate work as in host memory") {
  at_every_size([](const process_group& world, stream_ref stream) {
    auto options = staged(stream, true);
    options.static_graph = true;
    pair_of_models<float> graph({40, 3, 100}, false, world, options, stream);
    for (int round = 0; round < 3; ++round) {
      graph.fill(round);
      graph.pass({2, 0, 2});
      CHECK(graph.are_equal());
    }
    pair_of_models<float> models({40, 3, 100}, false, world, staged(stream, true), stream);
    models.fill(1);
    const auto copies = fake_cuda::copies(world.rank()).size();
    {
      const auto device_off = models.on_device().no_sync();
      const auto host_off = models.on_host().no_sync();
      models.pass();
      CHECK(fake_cuda::copies(world.rank()).size() == copies);
    }
    models.pass();
    CHECK(models.are_equal());
    accumulate cycle(models.on_device(), 2);
    for (int step = 0; step < 2; ++step) {
      const auto scope = cycle.step();
      models.fill(step);
      models.device_pass({2, 1, 0});
      CHECK(scope.synchronizes() == (step == 1));
    }
    models.host_pass({2, 1, 0});
    CHECK(models.are_equal());
  });
}

TEST_CASE("host_reduce: the calling thread may reduce") {
  at_every_size([](const process_group& world, stream_ref stream) {
    auto options = staged(stream, true);
    options.reduce_on_calling_thread = true;
    check_bits<float>(world, sizes_below_a_chunk, false, options);
  });
}

TEST_CASE("host_reduce: ranks with less data join, with the bits of host memory") {
  at_every_size([](const process_group& world, stream_ref stream) {
    for (const auto divisor : {divide_by::initial_world, divide_by::live_ranks}) {
      pair_of_models<bfloat16> models({16, 300}, true, world, staged(stream, true), stream);
      fake_cuda::set_copy_time(500us);
      const auto join = [&](distributed_data_parallel& ddp, auto pass_and_result) {
        std::vector<std::vector<bfloat16>> results;
        join_scope scope(ddp, {.divisor = divisor});
        for (int step = 0; step <= world.rank(); ++step) {  // rank r has r + 1 batches
          models.fill(step);
          results.push_back(pass_and_result());
        }
        scope.finish();
        return results;
      };
      const auto on_device = join(models.on_device(), [&] {
        models.device_pass({1, 0});
        return models.device_gradient(1);
      });
      const auto last = models.device_gradient(0);
      const auto on_host = join(models.on_host(), [&] {
        models.host_pass({1, 0});
        return models.host_gradient(1);
      });
      CHECK(pair_of_models<bfloat16>::are_same(last, models.host_gradient(0)));
      for (std::size_t step = 0; step < on_host.size(); ++step) {
        CHECK(pair_of_models<bfloat16>::are_same(on_device[step], on_host[step]));
      }
    }
  });
}

TEST_CASE("host_reduce: averages for a rank without data come after the work on its stream") {
  const fake_cuda::install fake;
  run_devices(2, [](const process_group& world, stream_ref stream) {
    pair_of_models<float> models({16}, true, world, staged(stream, true), stream);
    join_scope scope(models.on_device());
    for (int step = 0; step <= world.rank(); ++step) {
      models.fill(step);
      models.device_pass({0});
    }
    if (world.rank() == 0) {
      models.clear_on_stream(50ms);  // rank 1 makes its second pass meanwhile
    }
    scope.finish();
    const auto all = all_gather(models.device_gradient(0), world);
    CHECK(all[0] == all[1]);
    CHECK(all[0].front() != 0.0F);
  });
}

TEST_CASE("host_reduce: gradients that lie elsewhere are copied on the caller's stream") {
  at_every_size([](const process_group& world, stream_ref stream) {
    pair_of_models<float> models({40, 60}, true, world, staged(stream, true), stream);
    const auto elsewhere = on_device(std::vector<float>(60, static_cast<float>(world.rank())), stream);
    models.fill(1);
    models.on_device().begin_forward();
    models.on_device().mark_ready(1, std::as_bytes(std::span(elsewhere.data(), elsewhere.size())));
    models.on_device().mark_ready(0);
    models.on_device().finish();
    CHECK((models.device_gradient(1) == std::vector<float>(60, static_cast<float>(world.size() - 1) / 2.0F)));
  });
}

TEST_CASE("host_reduce: the next chunks come down before the first one is summed") {
  const fake_cuda::install fake;
  run_devices(2, [](const process_group& world, stream_ref stream) {
    auto options = staged(stream, false);
    options.first_bucket_bytes = std::size_t{100} << 20;
    pair_of_models<float> models({2'500'000}, true, world, options, stream);  // five chunks
    models.fill(1);
    const auto before = fake_cuda::copies(world.rank()).size();
    const auto wait_for_copies = [&](std::size_t copies) {
      while (fake_cuda::copies(world.rank()).size() < before + copies) {
        std::this_thread::sleep_for(100us);
      }
    };
    barrier(world);
    if (world.rank() == 1) {
      barrier(world);
    }
    models.on_device().begin_forward();
    models.on_device().mark_ready(0);
    if (world.rank() == 0) {
      // Rank 1 has not marked its gradient, so the first sum cannot end.
      wait_for_copies(3);
      std::this_thread::sleep_for(20ms);
      CHECK(fake_cuda::copies(0).size() == before + 3);
      barrier(world);
    }
    models.on_device().finish();
    const auto log = fake_cuda::copies(world.rank());
    std::vector<bool> goes_down;
    for (std::size_t index = before; index < log.size(); ++index) {
      goes_down.push_back(log[index].kind == cudaMemcpyDeviceToHost);
      CHECK(log[index].bytes <= std::size_t{2} << 20);
    }
    models.host_pass({0});
    CHECK(models.are_equal());
    CHECK((goes_down == std::vector<bool>{true, true, true, false, true, false, true, false, false, false}));
  });
}

TEST_CASE("host_reduce: a chunk's memory is not used again before its average is up") {
  const fake_cuda::install fake;
  run_devices(2, [](const process_group& world, stream_ref stream) {
    auto options = staged(stream, false);
    options.static_graph = true;  // so that the second parameter may never become ready: the host fills its chunks
    options.first_bucket_bytes = std::size_t{100} << 20;
    pair_of_models<float> models({3'000'000, 3'000'000}, true, world, options, stream);  // twelve chunks
    for (int pass = 0; pass < 2; ++pass) {
      models.fill(pass);
      fake_cuda::set_copy_time(cudaMemcpyHostToDevice, 10ms);
      models.pass(world.rank() == 0 ? std::vector<std::size_t>{0} : std::vector<std::size_t>{1, 0});
      CHECK(models.are_equal());
      barrier(world);
      fake_cuda::set_copy_time(0ms);
    }
  });
}

TEST_CASE("host_reduce: mark_ready does not wait for the device or for other ranks") {
  const fake_cuda::install fake;
  run_devices(2, [](const process_group& world, stream_ref stream) {
    pair_of_models<float> models({64, 64, 64}, true, world, staged(stream, true), stream);
    models.fill(1);
    barrier(world);
    std::atomic<bool> go{false};
    fake_cuda::launch(stream.get(), [&go] {
      while (!go.load()) {
        std::this_thread::sleep_for(100us);
      }
    });
    for (int turn = 0; turn < 2; ++turn) {
      if (world.rank() == turn) {
        models.on_device().begin_forward();
        for (const std::size_t index : each_of(2, 1, 0)) {
          models.on_device().mark_ready(index);
        }
      }
      barrier(world);
    }
    go.store(true);
    models.on_device().finish();
    models.host_pass({2, 1, 0});
    CHECK(models.are_equal());
  });
}

TEST_CASE("host_reduce: memory is registered once, and in a group of one nothing is") {
  at_every_size([](const process_group& world, stream_ref stream) {
    const auto allocations = fake_cuda::live().allocations;
    barrier(world);
    pair_of_models<float> models({1000, 20}, true, world, staged(stream, false), stream);
    barrier(world);
    const auto ranks = static_cast<std::size_t>(world.size());
    CHECK(fake_cuda::live().registered_ranges == (ranks == 1 ? 0 : ranks));
    CHECK(fake_cuda::live().allocations == allocations + 3 * ranks);  // the model
    const auto live = fake_cuda::live();
    const auto registered = fake_cuda::calls("cudaHostRegister");
    for (int pass = 0; pass < 5; ++pass) {
      models.fill(pass);
      models.pass();
      CHECK(models.are_equal());
    }
    barrier(world);
    CHECK(fake_cuda::calls("cudaHostRegister") == registered);
    CHECK(fake_cuda::live().events == (ranks == 1 ? fake_cuda::live().events : live.events));
    CHECK(fake_cuda::live().allocations == live.allocations);
    barrier(world);
  });
}

TEST_CASE("host_reduce: it changes nothing for parameters in host memory") {
  testing::run_ranks(2, [](const process_group& world) {
    std::vector<float> values(4);
    std::vector<float> gradients(4, static_cast<float>(world.rank()));
    ddp_options options;
    options.host_reduce = true;
    options.hook = [](gradient_bucket bucket) { return bucket.average(); };
    distributed_data_parallel ddp({named_parameter("p", values, gradients)}, {}, options, world);
    ddp.begin_forward();
    ddp.mark_ready(0);
    ddp.finish();
    CHECK((gradients == std::vector<float>(4, 0.5F)));
  });
}

}  // namespace
