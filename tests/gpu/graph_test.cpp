// SPDX-License-Identifier: MIT
// CUDA graphs of operations of a group of one.
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "device.hpp"

namespace {

using namespace hfcomm;

constexpr std::size_t count = 4099;

struct captured_group {
  std::shared_ptr<void> device = gpu::open();
  process_group group;
  gpu::stream stream;
  device_buffer<float> in{count};
  device_buffer<float> out{count};
  device_buffer<float> last{count};

  captured_group() {
    all_reduce_async(in, out, stream, reduce_op::sum, group).synchronize();  // warms up everything that is captured
    synchronize(stream, group);
  }

  /// Replays it with three inputs; each time `last` holds what the input held.
  void check_replays(const gpu::graph& captured) {
    for (const std::uint64_t seed : {7U, 8U, 9U}) {
      gpu::fill(stream.get(), in.data(), count * sizeof(float), seed);
      gpu::fill(stream.get(), out.data(), count * sizeof(float), 1);
      gpu::fill(stream.get(), last.data(), count * sizeof(float), 1);
      captured.launch(stream.get());
      CHECK(gpu::mismatches(stream.get(), last.data(), count * sizeof(float), seed) == 0);
    }
  }
};

TEST_CASE("device graphs: captured operations do not run, and every replay reads its input anew") {
  captured_group here;
  gpu::fill(here.stream.get(), here.last.data(), count * sizeof(float), 5);
  gpu::drain(here.stream);
  const gpu::graph captured(here.stream.get(), [&] {
    all_reduce(here.in, here.out, here.stream, reduce_op::sum, here.group);
    all_gather(here.out, here.last, here.stream, here.group);
    barrier(here.stream, here.group);
  });
  CHECK(gpu::mismatches(here.stream.get(), here.last.data(), count * sizeof(float), 5) == 0);
  here.check_replays(captured);
}

TEST_CASE("device graphs: started operations become branches") {
  captured_group here;
  const gpu::graph captured(here.stream.get(), [&] {
    auto first = all_reduce_async(here.in, here.out, here.stream, reduce_op::max, here.group);
    first.wait(here.stream);
    {
      const auto dropped = all_to_all_async(here.out, here.last, here.stream, here.group);
    }
  });
  here.check_replays(captured);
}

TEST_CASE("device graphs: one graph may hold every operation") {
  captured_group here;
  auto& [device, group, stream, in, out, last] = here;
  const std::array<std::size_t, 1> all{count};
  const gpu::graph captured(stream.get(), [&] {
    reduce(in, out, stream, 0, reduce_op::sum, group);
    reduce_scatter(out, last, stream, reduce_op::sum, group);
    broadcast(last, stream, 0, group);
    gather(last, out, stream, 0, group);
    scatter(out, last, stream, 0, group);
    all_gather(last, out, all, stream, group);
    send_receive(out, 0, last, 0, stream, group);
  });
  here.check_replays(captured);
}

TEST_CASE("device graphs: kernels and operations keep their order") {
  captured_group here;
  auto& [device, group, stream, in, out, last] = here;
  const gpu::graph captured(stream.get(), [&] {
    gpu::multiply(stream.get(), in.data(), count, 2.0F);
    all_reduce(in, out, stream, reduce_op::sum, group);
    gpu::multiply(stream.get(), out.data(), count, 3.0F);
  });
  const std::vector<float> ones(count, 1.0F);
  copy(ones, in, stream);
  for (int turn = 0; turn < 3; ++turn) {
    captured.launch(stream.get());
  }
  CHECK((gpu::on_host(out, stream) == std::vector<float>(count, 24.0F)));
}

}  // namespace
