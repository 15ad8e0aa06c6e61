// SPDX-License-Identifier: MIT
#include <algorithm>
#include <chrono>
#include <deque>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/ddp.hpp>

#include "device_ranks.hpp"

namespace {

using namespace hfcomm;
using namespace device_ranks;
using namespace std::chrono_literals;

/// Parameters of a few sizes in a device's memory, in one piece or in many.
template <class T = float>
class toy_model {
 public:
  toy_model(const std::vector<std::size_t>& sizes, bool one_piece, stream_ref stream) : stream_(stream) {
    std::size_t total = 0;
    for (const std::size_t size : sizes) {
      total += size;
    }
    values_.emplace_back(total);
    if (one_piece) {
      gradients_.emplace_back(total);
    }
    std::size_t offset = 0;
    for (const std::size_t size : sizes) {
      if (!one_piece) {
        gradients_.emplace_back(size);
      }
      value_.push_back(values_.front().span().subspan(offset, size));
      gradient_.push_back(one_piece ? gradients_.front().span().subspan(offset, size) : gradients_.back().span());
      offset += size;
    }
  }

  [[nodiscard]] std::vector<ddp_parameter> parameters() {
    std::vector<ddp_parameter> named;
    for (std::size_t index = 0; index < value_.size(); ++index) {
      named.push_back(named_parameter("p" + std::to_string(index), value_[index], gradient_[index]));
    }
    return named;
  }
  [[nodiscard]] std::size_t size() const { return value_.size(); }
  [[nodiscard]] device_span<T> value(std::size_t index) const { return value_[index]; }
  [[nodiscard]] device_span<T> gradient(std::size_t index) const { return gradient_[index]; }
  [[nodiscard]] std::vector<T> host_gradient(std::size_t index) const { return on_host(gradient_[index], stream_); }

  /// Adds to a gradient some time later, as a kernel of a backward pass does.
  void add(std::size_t index, float what) const {
    fake_cuda::launch(stream_.get(), [data = gradient_[index], what] {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      for (std::size_t element = 0; element < data.size(); ++element) {
        data.data()[element] = T(static_cast<float>(data.data()[element]) + what);
      }
    });
  }
  void set_all(float what) const {
    for (const auto data : gradient_) {
      fake_cuda::launch(stream_.get(), [data, what] { std::fill_n(data.data(), data.size(), T(what)); });
    }
  }
  [[nodiscard]] bool all_are(float what) const {
    for (std::size_t index = 0; index < size(); ++index) {
      if (host_gradient(index) != std::vector<T>(gradient_[index].size(), T(what))) {
        return false;
      }
    }
    return true;
  }

  void pass(distributed_data_parallel& ddp, float what) const {
    ddp.begin_forward();
    for (std::size_t index = size(); index-- > 0;) {
      add(index, what);
      ddp.mark_ready(index);
    }
    ddp.finish();
  }

 private:
  stream_ref stream_;
  std::deque<device_buffer<T>> values_;
  std::deque<device_buffer<T>> gradients_;
  std::vector<device_span<T>> value_;
  std::vector<device_span<T>> gradient_;
};

ddp_options small_buckets(stream_ref stream) {
  ddp_options options;
  options.first_bucket_bytes = 16;
  options.bucket_bytes = 300;
  options.stream = stream;
  return options;
}

float mean_rank(const process_group& world) { return static_cast<float>(world.size() - 1) / 2.0F; }

template <class T>
void check_averages(const process_group& world, stream_ref stream, bool one_piece) {
  toy_model<T> model({5, 0, 33, 64, 1}, one_piece, stream);
  to_device(std::vector<T>(5, T(static_cast<float>(world.rank()) + 3.0F)), model.value(0), stream);
  distributed_data_parallel ddp(model.parameters(), {}, small_buckets(stream), world);
  CHECK(ddp.bucket_count() >= 2);
  CHECK((on_host(model.value(0), stream) == std::vector<T>(5, T(3.0F))));  // rank 0's
  for (int round = 1; round <= 3; ++round) {
    model.set_all(0.0F);
    model.pass(ddp, static_cast<float>(world.rank() * round));
    CHECK(model.all_are(mean_rank(world) * static_cast<float>(round)));
  }
  CHECK(ddp.finished_passes() == 3);
}

TEST_CASE("ddp on devices: gradients of every type and memory layout become the average") {
  at_every_size([](const process_group& world, stream_ref stream) {
    for (const bool one_piece : {true, false}) {
      check_averages<float>(world, stream, one_piece);
      check_averages<double>(world, stream, one_piece);
      check_averages<float16>(world, stream, one_piece);
      check_averages<bfloat16>(world, stream, one_piece);
    }
  });
}

TEST_CASE("ddp on devices: gradients of its own memory are averaged there") {
  at_every_size([](const process_group& world, stream_ref stream) {
    for (const bool find_unused : {false, true}) {
      device_buffer<float> values(100);
      const std::vector<std::size_t> sizes{40, 0, 60};
      std::vector<ddp_parameter> parameters;
      for (std::size_t index = 0, offset = 0; index < sizes.size(); offset += sizes[index++]) {
        parameters.push_back(named_parameter("p" + std::to_string(index), values.span().subspan(offset, sizes[index])));
      }
      auto options = small_buckets(stream);
      options.find_unused_parameters = find_unused;
      distributed_data_parallel ddp(std::move(parameters), {}, options, world);
      const auto gradient = [&](std::size_t index) {
        const auto bytes = ddp.gradient(index);
        return device_span<float>(reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float));
      };
      CHECK((on_host(gradient(2), stream) == std::vector<float>(60)));
      for (int pass = 0; pass < 4; ++pass) {
        ddp.begin_forward();
        for (const std::size_t index : {2U, 0U, 1U}) {
          fake_cuda::launch(stream.get(), [to = gradient(index), what = static_cast<float>(world.rank() + pass)] {
            std::fill_n(to.data(), to.size(), what);
          });
          ddp.mark_ready(index);
        }
        ddp.finish();
        for (std::size_t index = 0; index < sizes.size(); ++index) {
          CHECK((on_host(gradient(index), stream) ==
                 std::vector<float>(sizes[index], mean_rank(world) + static_cast<float>(pass))));
        }
        CHECK(ddp.last_pass().copied_bytes == (find_unused ? 100 * sizeof(float) : 0));
      }
    }
  });
}

TEST_CASE("ddp on devices: gradients may be contiguous on some ranks only") {
  const fake_cuda::install fake;
  run_devices(3, [](const process_group& world, stream_ref stream) {
    check_averages<float>(world, stream, world.rank() == 1);
  });
}

TEST_CASE("ddp on devices: the host never waits, and the first bucket is reduced during backward") {
  const fake_cuda::install fake;
  run_devices(2, [](const process_group& world, stream_ref stream) {
    toy_model<> model({64, 64, 64}, true, stream);
    distributed_data_parallel ddp(model.parameters(), {}, small_buckets(stream), world);
    CHECK(ddp.bucket_count() == 3);
    model.set_all(0.0F);
    barrier(world);
    const std::vector<const char*> waiting = {"cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize",
                                              "cudaStreamQuery", "cudaEventQuery"};
    std::vector<std::uint64_t> before;
    for (const char* function : waiting) {
      before.push_back(fake_cuda::calls(function));
    }
    const auto reductions = fake_cuda::calls("ncclAllReduce");
    const auto copies = fake_cuda::calls("cudaMemcpyAsync");
    const auto allocations = fake_cuda::live().allocations;
    barrier(world);
    // The stream is held up until all of the pass has been put on it: nothing in the pass may wait for it.
    std::atomic<bool> go{false};
    fake_cuda::launch(stream.get(), [&go] {
      while (!go.load()) {
        std::this_thread::sleep_for(100us);
      }
    });
    // And one rank after the other: nothing in it may wait for another rank.
    for (const std::uint64_t turn : each_of<std::uint64_t>(0, 1)) {
      if (static_cast<std::uint64_t>(world.rank()) == turn) {
        ddp.begin_forward();
        model.add(2, 1.0F);
        ddp.mark_ready(2);
        CHECK(fake_cuda::calls("ncclAllReduce") == reductions + 3 * turn + 1);
        model.add(1, 1.0F);
        model.add(0, 1.0F);
        ddp.mark_ready(0);
        ddp.mark_ready(1);
        ddp.finish();
      }
      barrier(world);
    }
    for (std::size_t index = 0; index < waiting.size(); ++index) {
      CHECK_MESSAGE(fake_cuda::calls(waiting[index]) == before[index], waiting[index]);
    }
    CHECK(fake_cuda::calls("ncclAllReduce") == reductions + 6);
    CHECK(fake_cuda::calls("cudaMemcpyAsync") == copies);  // in one piece: reduced where they are
    CHECK(fake_cuda::live().allocations == allocations);
    barrier(world);
    go.store(true);
    CHECK(model.all_are(1.0F));
  });
}

TEST_CASE("ddp on devices: no_sync and accumulate work") {
  at_every_size([](const process_group& world, stream_ref stream) {
    toy_model<> model({40, 3, 100}, false, stream);
    distributed_data_parallel ddp(model.parameters(), {}, small_buckets(stream), world);
    const auto mine = static_cast<float>(world.rank());
    model.set_all(0.0F);
    {
      const auto off = ddp.no_sync();
      model.pass(ddp, mine);
      CHECK(model.all_are(mine));
    }
    model.pass(ddp, 8.0F);
    CHECK(model.all_are(mean_rank(world) + 8.0F));
    model.set_all(0.0F);
    accumulate cycle(ddp, 2);
    for (int step = 0; step < 2; ++step) {
      const auto scope = cycle.step();
      model.pass(ddp, mine);
      CHECK(scope.synchronizes() == (step == 1));
    }
    CHECK(model.all_are(2.0F * mean_rank(world)));
  });
}

TEST_CASE("ddp on devices: unused parameters count as zero, and one that no rank used is unchanged") {
  at_every_size([](const process_group& world, stream_ref stream) {
    toy_model<> model({7, 20, 3}, true, stream);
    auto options = small_buckets(stream);
    options.find_unused_parameters = true;
    distributed_data_parallel ddp(model.parameters(), {}, options, world);
    for (int round = 0; round < 2; ++round) {
      model.set_all(4.0F);
      ddp.begin_forward();
      if (world.rank() == world.size() - 1) {
        ddp.mark_ready(1);
      }
      ddp.mark_ready(2);
      ddp.finish();
      CHECK((model.host_gradient(0) == std::vector<float>(7, 4.0F)));
      CHECK((model.host_gradient(1) == std::vector<float>(20, 4.0F / static_cast<float>(world.size()))));
      CHECK((model.host_gradient(2) == std::vector<float>(3, 4.0F)));
    }
  });
}

TEST_CASE("ddp on devices: unused parameters may have several types") {
  at_every_size([](const process_group& world, stream_ref stream) {
    toy_model<bfloat16> narrow({3, 5}, false, stream);
    toy_model<double> wide({3, 2}, false, stream);
    auto parameters = narrow.parameters();
    for (auto& parameter : wide.parameters()) {
      parameter.name += "w";
      parameters.push_back(parameter);
    }
    auto options = small_buckets(stream);
    options.find_unused_parameters = true;
    distributed_data_parallel ddp(parameters, {}, options, world);
    narrow.set_all(2.0F);
    wide.set_all(static_cast<float>(world.rank()));
    ddp.begin_forward();
    for (const std::size_t index : each_of<std::size_t>(0, 1, 2, 3)) {
      ddp.mark_ready(index);
    }
    ddp.finish();
    CHECK(narrow.all_are(2.0F));
    CHECK(wide.all_are(mean_rank(world)));
  });
}

TEST_CASE("ddp on devices: ranks with less data join") {
  at_every_size([](const process_group& world, stream_ref stream) {
    for (const auto divisor : {divide_by::initial_world, divide_by::live_ranks}) {
      toy_model<> model({16, 16}, world.rank() % 2 == 0, stream);
      distributed_data_parallel ddp(model.parameters(), {}, small_buckets(stream), world);
      join_scope scope(ddp, {.divisor = divisor});
      for (int step = 0; step <= world.rank(); ++step) {  // rank r has r + 1 batches
        model.set_all(0.0F);
        model.pass(ddp, 16.0F);
        const int live = world.size() - step;
        const int divided = divisor == divide_by::live_ranks ? live : world.size();
        const float expected = 16.0F * static_cast<float>(live) / static_cast<float>(divided);
        for (const std::size_t index : each_of(0, 1)) {
          for (const float element : model.host_gradient(index)) {
            CHECK(element == doctest::Approx(expected).epsilon(1e-6));  // each rank's part is rounded
          }
        }
      }
      scope.finish();
    }
  });
}

TEST_CASE("ddp on devices: each pass begins with rank 0's buffers") {
  at_every_size([](const process_group& world, stream_ref stream) {
    toy_model<> model({4}, true, stream);
    device_buffer<int> count(3);
    std::vector<int> on_the_host(2);
    distributed_data_parallel ddp(model.parameters(), {named_buffer("count", count), named_buffer("host", on_the_host)},
                                  small_buckets(stream), world);
    for (int round = 0; round < 2; ++round) {
      to_device(std::vector<int>(3, world.rank() + round), count, stream);
      on_the_host.assign(2, world.rank() + 5);
      model.set_all(1.0F);
      model.pass(ddp, 0.0F);
      CHECK((on_host(count, stream) == std::vector<int>(3, round)));
      CHECK((on_the_host == std::vector<int>(2, 5)));
    }
  });
}

TEST_CASE("ddp on devices: a hook works on the stream of its bucket") {
  at_every_size([](const process_group& world, stream_ref stream) {
    for (const bool one_piece : {false, true}) {
      toy_model<> model({16, 64, 3}, one_piece, stream);
      auto options = small_buckets(stream);
      options.hook = [](gradient_bucket bucket) -> work<void> {
        CHECK(bucket.on_device());
        CHECK(*bucket.stream() != stream_ref::legacy_default());
        co_await bucket.average();
        fake_cuda::launch(bucket.stream()->get(), [data = bucket.elements<float>()] {
          for (float& one : data) {
            one += 5.0F;
          }
        });
      };
      distributed_data_parallel ddp(model.parameters(), {}, options, world);
      for (int round = 0; round < 2; ++round) {
        model.set_all(0.0F);
        model.pass(ddp, static_cast<float>(2 * world.rank()));
        CHECK(model.all_are(static_cast<float>(world.size() - 1) + 5.0F));
      }
    }
  });
}

TEST_CASE("ddp on devices: a hook for host memory is a usage_error") {
  const fake_cuda::install fake;
  run_devices(2, [](const process_group& world, stream_ref stream) {
    toy_model<> model({16}, true, stream);
    auto options = small_buckets(stream);
    options.hook = compress_gradients<float16>();
    distributed_data_parallel ddp(model.parameters(), {}, options, world);
    CHECK_THROWS_WITH_AS(model.pass(ddp, 1.0F), doctest::Contains("compress_gradients is for gradients in host memory"),
                         usage_error);
  });
}

TEST_CASE("ddp on devices: a pass can be captured in a graph") {
  const fake_cuda::install fake;
  run_devices(2, [](const process_group& world, stream_ref stream) {
    toy_model<> model({16, 64}, world.rank() == 0, stream);
    distributed_data_parallel ddp(model.parameters(), {}, small_buckets(stream), world);
    model.set_all(0.0F);
    model.pass(ddp, 1.0F);
    CHECK(model.all_are(1.0F));
    fake_cuda::begin_capture(stream.get());
    model.pass(ddp, static_cast<float>(world.rank()));
    const auto graph = fake_cuda::end_capture(stream.get());
    for (int round = 0; round < 3; ++round) {
      model.set_all(0.0F);
      graph.launch(stream.get());
      CHECK(model.all_are(0.5F));
    }
  });
}

}  // namespace
