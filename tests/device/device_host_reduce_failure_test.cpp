// SPDX-License-Identifier: MIT
// Failures with ddp_options::host_reduce: every rank gets an error, nothing hangs or leaks, and training goes on
// where it can.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
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

using models_of_float = pair_of_models<float>;

/// Three chunks in one bucket, and one in another.
const std::vector<std::size_t> chunked_sizes{1'100'000, 10};

/// Returns the text of the error that `call` throws on every rank or on none; empty where it throws none. The victim
/// throws CUDA's error, the others peer_error with its text.
template <class Call>
std::string error_everywhere(const process_group& world, int victim, Call&& call) {
  std::string text;
  bool is_of_kind = true;
  try {
    call();
  } catch (const engine_error& problem) {
    text = problem.what();
    is_of_kind = world.rank() == victim && problem.rank() == victim;
  } catch (const peer_error& problem) {
    text = problem.what();
    is_of_kind = world.rank() != victim && problem.peer() == victim;
  }
  CHECK_MESSAGE(is_of_kind, text);
  const auto texts = all_gather(text, world);
  for (const std::string& one : texts) {
    CHECK_MESSAGE(one.empty() == texts.front().empty(), one);
  }
  return text;
}

std::vector<std::size_t> each_in(std::vector<std::size_t> parameters) { return parameters; }

void check_pass(models_of_float& models, int seed) {
  models.fill(seed);
  models.pass();
  CHECK(models.are_equal());
}

/// Makes the nth call of a function on rank 1's device fail, for every n that a pass comes to.
void fail_each_call(const std::string& function, const ddp_options& wanted, int at_least) {
  const fake_cuda::install fake;
  run_devices(3, [&](const process_group& world, stream_ref stream) {
    auto options = wanted;
    options.stream = stream;
    models_of_float models(chunked_sizes, false, world, options, stream);
    int failures = 0;
    for (std::uint64_t nth = 1; nth <= 40; ++nth) {
      models.fill(static_cast<int>(nth));
      barrier(world);
      if (world.rank() == 1) {
        fake_cuda::fail_call(function, nth, cudaErrorLaunchFailure, 1);
      }
      const auto text = error_everywhere(world, 1, [&] { models.device_pass({1, 0}); });
      if (text.empty()) {
        break;  // the pass has fewer calls of it; the next fill meets the fault, if any
      }
      ++failures;
      CHECK_CONTAINS(text, function);
      CHECK_CONTAINS(text, "host_reduce_model.hpp");  // the call site
      check_pass(models, 1);
    }
    CHECK(failures >= at_least);
    CHECK_FALSE(world.broken());
  });
}

TEST_CASE(
    "host_reduce: a failure of each call of CUDA in a pass ends the pass on all ranks, and the next one is right") {
  ddp_options options = staged(stream_ref::legacy_default(), false);
  fail_each_call("cudaMemcpyAsync", options, 8);      // 4 chunks down, 4 up
  fail_each_call("cudaEventRecord", options, 12);     // 2 buckets, 8 copies, 2 ends
  fail_each_call("cudaStreamWaitEvent", options, 6);  // 2 streams for each of 2 buckets, and the caller's for 2 ends
  fail_each_call("cudaStreamIsCapturing", options, 12);
  fail_each_call("cudaEventQuery", options, 5);
  options.find_unused_parameters = true;
  fail_each_call("cudaMemcpyAsync", options, 8);
}

TEST_CASE("host_reduce: a failure while gradients move to buckets that are filled anew leaves them where they are") {
  const fake_cuda::install fake;
  run_devices(2, [](const process_group& world, stream_ref stream) {
    device_buffer<float> values(130);
    distributed_data_parallel ddp(
        {named_parameter("p0", values.span().first(40)), named_parameter("p1", values.span().subspan(40, 60)),
         named_parameter("p2", values.span().subspan(100, 30))},
        {}, staged(stream, true), world);
    const auto gradient = [&](std::size_t index) {
      const auto bytes = ddp.gradient(index);
      return device_span<float>(reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float));
    };
    const auto pass = [&](int number) {
      ddp.begin_forward();
      for (const std::size_t index : {0U, 2U, 1U}) {  // not the reverse order
        to_device(std::vector<float>(gradient(index).size(), static_cast<float>(number)), gradient(index), stream);
        ddp.mark_ready(index);
      }
      ddp.finish();
    };
    const auto are_all = [&](float value) {
      for (const std::size_t index : {0U, 1U, 2U}) {
        CHECK((on_host(gradient(index), stream) == std::vector<float>(gradient(index).size(), value)));
      }
    };
    pass(1);
    pass(2);  // agrees on the order
    for (std::uint64_t nth = 1; nth <= 3; ++nth) {
      barrier(world);
      if (world.rank() == 1) {
        fake_cuda::fail_call("cudaMemcpyAsync", nth, cudaErrorLaunchFailure, 1);
        CHECK_CONTAINS(error_of<engine_error>([&] { ddp.begin_forward(); }).what(), "cudaMemcpyAsync");
      } else {
        CHECK_CONTAINS(error_of<peer_error>([&] { pass(3); }).what(), "cudaMemcpyAsync");
        continue;
      }
      are_all(2);
    }
    pass(4);
    are_all(4);
    CHECK(fake_cuda::illegal_accesses() == 0);
  });
}

/// Makes the nth call of a function in the constructor fail, for every n that it comes to.
void fail_each_call_of_constructor(const std::string& function, int victim) {
  INFO(function, " on rank ", victim);
  const fake_cuda::install fake;
  run_devices(3, [&](const process_group& world, stream_ref stream) {
    device_buffer<float> values(1'100'000);
    int failures = 0;
    for (std::uint64_t nth = 1; nth <= 40; ++nth) {
      barrier(world);
      if (world.rank() == victim) {
        fake_cuda::fail_call(function, nth, cudaErrorLaunchFailure, victim);
      }
      const auto text = error_everywhere(world, victim, [&] {
        const distributed_data_parallel ddp({named_parameter("p", values)}, {}, staged(stream, false), world);
      });
      if (text.empty()) {
        break;
      }
      ++failures;
      CHECK_CONTAINS(text, function);
      CHECK_CONTAINS(text, "device_host_reduce_failure_test.cpp");
    }
    CHECK(failures >= 1);
    CHECK_FALSE(world.broken());
  });
}

TEST_CASE("host_reduce: a failure of each call of CUDA in the constructor is an error on all ranks") {
  for (const int victim : {0, 1}) {
    for (const char* function : {"cudaGetDevice", "cudaStreamCreateWithPriority", "cudaEventCreateWithFlags",
                                 "cudaHostRegister", "cudaMemcpyAsync", "cudaEventRecord", "cudaStreamWaitEvent",
                                 "cudaStreamIsCapturing", "cudaMalloc", "cudaMemsetAsync"}) {
      fail_each_call_of_constructor(function, victim);
    }
  }
}

TEST_CASE("host_reduce: memory that cannot be page-locked is an error that says what to do") {
  const fake_cuda::install fake;
  fake_cuda::fail_call("cudaHostRegister", 1, cudaErrorMemoryAllocation, 1);
  run_devices(2, [](const process_group& world, stream_ref stream) {
    device_buffer<float> values(10);
    const auto text = error_everywhere(world, 1, [&] {
      const distributed_data_parallel ddp({named_parameter("p", values)}, {}, staged(stream, false), world);
    });
    CHECK_CONTAINS(text, "cudaHostRegister: out of memory (CUDA error 2)");
    CHECK_CONTAINS(text, "ulimit -l");
  });
}

TEST_CASE("host_reduce: a hook, memory elsewhere and a captured pass are usage_errors") {
  const fake_cuda::install fake;
  run_devices(2, [](const process_group& world, stream_ref stream) {
    device_buffer<float> values(10);
    device_buffer<float> gradients(10);
    std::vector<float> host(10);
    const auto problem_of = [&](ddp_parameter parameter, const ddp_options& options) {
      std::string text;
      try {
        const distributed_data_parallel ddp({std::move(parameter)}, {}, options, world);
      } catch (const error& problem) {
        text = problem.what();
      }
      return text;
    };
    auto hooked = staged(stream, false);
    hooked.hook = [](gradient_bucket bucket) { return bucket.average(); };
    CHECK_CONTAINS(problem_of(named_parameter("p", values), hooked), "host_reduce takes no hook");

    auto elsewhere = named_parameter("p", values, gradients);
    elsewhere.gradient = std::as_writable_bytes(std::span(host));
    CHECK_CONTAINS(problem_of(elsewhere, staged(stream, false)),
                   "the gradient of parameter \"p\": the buffer is in host");
    auto by_hand = named_parameter("p", values, gradients);
    by_hand.kernel = nullptr;
    CHECK_CONTAINS(problem_of(by_hand, staged(stream, false)), "has no kernel");

    auto one_differs = staged(stream, false);
    one_differs.host_reduce = world.rank() == 0;
    CHECK_THROWS_AS(distributed_data_parallel({named_parameter("p", values)}, {}, one_differs, world), mismatch_error);

    models_of_float models({20}, true, world, staged(stream, false), stream);
    CHECK_CONTAINS(error_of<usage_error>([&] { (void)models.on_device().device_group(); }).what(), "host_reduce");
    CHECK_CONTAINS(error_of<usage_error>([&] {
                     models.on_device().mark_ready(0, std::as_bytes(std::span(host).first(20 / 2)));
                   }).what(),
                   "bytes");
  });
  run_devices(2, [](const process_group& world, stream_ref stream) {
    models_of_float models({20}, true, world, staged(stream, false), stream);
    models.fill(1);
    if (world.rank() == 1) {
      fake_cuda::begin_capture(stream.get());
    }
    std::string text;
    try {
      models.device_pass({0});
    } catch (const error& problem) {
      text = problem.what();
    }
    CHECK_CONTAINS(text, "cannot be captured in a graph");
    if (world.rank() == 1) {
      CHECK_THROWS_AS((void)fake_cuda::end_capture(stream.get()), std::logic_error);  // the error has ended it
    }
    check_pass(models, 2);
  });
}

TEST_CASE("host_reduce: a pass that a rank abandons is an error on the others, and the next one is right") {
  at_every_size(
      [](const process_group& world, stream_ref stream) {
        models_of_float models(chunked_sizes, true, world, staged(stream, false), stream);
        fake_cuda::set_copy_time(1ms);
        for (int round = 0; round < 2; ++round) {
          models.fill(round);
          auto& ddp = models.on_device();
          ddp.begin_forward();
          ddp.mark_ready(1);
          if (world.rank() == 1) {
            ddp.abandon_pass("a bad batch");
          } else {
            ddp.mark_ready(0);
            const auto problem = error_of<peer_error>([&] { ddp.finish(); });
            CHECK_CONTAINS(problem.what(), "a bad batch");
            CHECK(problem.peer() == 1);
          }
          ddp.begin_forward();  // from here on the gradients may be touched
          check_pass(models, round + 5);
          // With everything marked, the others end their pass.
          models.fill(round);
          ddp.begin_forward();
          ddp.mark_ready(1);
          ddp.mark_ready(0);
          world.rank() == 1 ? ddp.abandon_pass("changed its mind") : ddp.finish();
          ddp.begin_forward();
          models.host_pass({1, 0});
          CHECK(models.are_equal());
          models.fill(round);
          ddp.mark_ready(1);
          ddp.mark_ready(0);
          ddp.finish();
          models.host_pass({1, 0});
          CHECK(models.are_equal());
        }
      },
      2);
}

TEST_CASE("host_reduce: a parameter that never became ready is named on every rank") {
  const fake_cuda::install fake;
  run_devices(3, [](const process_group& world, stream_ref stream) {
    models_of_float models({5, 6}, true, world, staged(stream, true), stream);
    models.fill(1);
    const auto pass = [&] { models.device_pass(world.rank() == 2 ? each_in({1}) : each_in({1, 0})); };
    if (world.rank() == 2) {
      CHECK_CONTAINS(error_of<usage_error>(pass).what(), "\"p0\"");
    } else {
      CHECK_CONTAINS(error_of<peer_error>(pass).what(), "\"p0\"");
    }
    check_pass(models, 2);
  });
}

TEST_CASE("host_reduce: a rank that dies ends the pass of the others") {
  for (const bool finishes_copies : {true, false}) {
    const fake_cuda::install fake;
    const auto cause = cause_of(3, [&](const process_group& world) {
      const rank_stream stream(world);
      models_of_float models(chunked_sizes, true, world, staged(stream, false), stream);
      fake_cuda::set_copy_time(finishes_copies ? 0ms : 2ms);
      models.fill(1);
      models.on_device().begin_forward();
      models.on_device().mark_ready(1);
      barrier(world);
      if (world.rank() == 2) {
        throw std::runtime_error("out of luck");
      }
      const auto problem = error_of<peer_error>([&] {
        models.on_device().mark_ready(0);
        models.on_device().finish();
      });
      CHECK(problem.peer() == 2);
      CHECK_CONTAINS(problem.what(), "out of luck");
      CHECK_THROWS_AS(models.device_pass({1, 0}), error);
    });
    CHECK(cause.find("out of luck") != std::string::npos);
    CHECK(fake_cuda::live().registered_ranges == 0);
    CHECK(fake_cuda::illegal_accesses() == 0);
  }
}

TEST_CASE("host_reduce: work that never ends before the copies is a timeout_error") {
  const fake_cuda::install fake;
  run_devices(2, [](const process_group& world, stream_ref stream) {
    models_of_float models({5, 6}, true, world.with_timeout(300ms), staged(stream, true), stream);
    const auto go = std::make_shared<std::atomic<bool>>(false);  // the work outlives this function
    if (world.rank() == 1) {
      fake_cuda::launch(stream.get(), [go] {
        while (!go->load()) {
          std::this_thread::sleep_for(100us);
        }
      });
    }
    const auto begun = std::chrono::steady_clock::now();
    const auto problem = error_of<timeout_error>([&] { models.device_pass({1, 0}); });
    CHECK_CONTAINS(problem.what(), "timed out");
    CHECK(std::chrono::steady_clock::now() - begun < 20s);
    CHECK_THROWS_AS(models.device_pass({1, 0}), error);
    go->store(true);
  });
}

TEST_CASE("host_reduce: the destructor does not wait for work that never ends, and frees the memory afterwards") {
  const auto before = std::exchange(default_nccl_options().teardown_timeout, 50ms);
  const fake_cuda::install fake;
  testing::run_ranks(2, [](const process_group& world) {
    const rank_stream stream(world);
    std::atomic<bool> go{false};
    device_buffer<float> gradients(100);
    {
      distributed_data_parallel ddp({named_parameter("p", gradients, gradients)}, {}, staged(stream, true), world);
      const auto copies = fake_cuda::copies(world.rank()).size();
      fake_cuda::launch(stream.get(), [&go] {
        while (!go.load()) {
          std::this_thread::sleep_for(100us);
        }
      });
      ddp.mark_ready(0);
      while (fake_cuda::copies(world.rank()).size() == copies) {
        std::this_thread::sleep_for(100us);
      }
    }
    barrier(world);
    CHECK(fake_cuda::live().registered_ranges == 2);  // copies may still use them
    barrier(world);
    go.store(true);
    while (fake_cuda::live().registered_ranges != 0) {
      std::this_thread::sleep_for(1ms);
    }
  });
  CHECK(fake_cuda::illegal_accesses() == 0);
  default_nccl_options().teardown_timeout = before;
}

}  // namespace
