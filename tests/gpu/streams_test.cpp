// SPDX-License-Identifier: MIT
// Order on streams: behind a kernel that lasts as long as the test needs, an operation returns at once and runs after
// the kernel.
#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "device.hpp"

namespace {

using namespace hfcomm;
using namespace std::chrono_literals;
using gpu::error_of;

constexpr std::size_t length = 100'003;
constexpr std::uint64_t before = 1;
constexpr std::uint64_t wanted = 2;

template <class T>
void fill(device_buffer<T>& data, std::uint64_t seed, stream_ref stream) {
  gpu::fill(stream.get(), data.data(), data.size() * sizeof(T), seed);
}
template <class T>
bool holds(const device_buffer<T>& data, std::uint64_t seed, stream_ref stream) {
  return gpu::mismatches(stream.get(), data.data(), data.size() * sizeof(T), seed) == 0;
}

/// An input and an output, and a group that has been used on the device before.
struct used_group {
  std::shared_ptr<void> device = gpu::open();
  process_group group;
  gpu::stream stream;
  gpu::stream other;
  device_buffer<float> in{length};
  device_buffer<float> out{length};

  used_group() {
    fill(in, before, stream);
    fill(out, before, stream);
    all_reduce_async(in, out, stream, reduce_op::sum, group).synchronize();
    gpu::drain(stream);
  }
};

TEST_CASE("device operations: behind a long kernel they return at once and read what the kernel writes") {
  used_group here;
  auto& [device, group, stream, other, in, out] = here;
  const std::array<std::size_t, 1> all{length};
  const auto behind = [&](const char* name, auto operation) {
    INFO(name);
    fill(in, before, stream);
    fill(out, before, stream);
    gpu::drain(stream);
    gpu::gate gate(stream);
    fill(in, wanted, stream);
    operation();
    CHECK(stream.busy());
    CHECK(holds(out, before, other));  // another stream sees that it has not begun
    gate.open();
    synchronize(stream, group);
    CHECK_FALSE(stream.busy());
    CHECK(holds(out, wanted, other));
  };
  behind("all_reduce", [&] { all_reduce(in, out, stream, reduce_op::sum, group); });
  behind("reduce", [&] { reduce(in, out, stream, 0, reduce_op::sum, group); });
  behind("reduce_scatter", [&] { reduce_scatter(in, out, stream, reduce_op::sum, group); });
  behind("all_gather", [&] { all_gather(in, out, stream, group); });
  behind("uneven all_gather", [&] { all_gather(in, out, all, stream, group); });
  behind("gather", [&] { gather(in, out, stream, 0, group); });
  behind("scatter", [&] { scatter(in, out, stream, 0, group); });
  behind("all_to_all", [&] { all_to_all(in, out, stream, group); });
  behind("send_receive", [&] { send_receive(in, 0, out, 0, stream, group); });
  behind("all_gather and barrier", [&] {
    all_gather(in, out, stream, group);
    barrier(stream, group);
  });
  behind("nccl_group_scope", [&] {
    const nccl_group_scope together(group);
    all_reduce(in, out, stream, reduce_op::sum, group);
  });
}

TEST_CASE("device operations: a kernel behind one sees its result") {
  used_group here;
  auto& [device, group, stream, other, in, out] = here;
  std::vector<float> ones(length, 1.0F);
  copy(ones, in, stream);
  gpu::drain(stream);
  {
    gpu::gate gate(stream);
    gpu::multiply(stream.get(), in.data(), length, 2.0F);
    all_reduce(in, out, stream, reduce_op::sum, group);
    gpu::multiply(stream.get(), in.data(), length, 5.0F);  // after the operation has read it
    gpu::multiply(stream.get(), out.data(), length, 3.0F);
    CHECK(stream.busy());
  }
  CHECK((gpu::on_host(out, stream) == std::vector<float>(length, 6.0F)));
  CHECK((gpu::on_host(in, stream) == std::vector<float>(length, 10.0F)));
}

TEST_CASE("started operations: they run after their stream's earlier work, and order whoever waits for them") {
  used_group here;
  auto& [device, group, stream, other, in, out] = here;
  fill(in, before, stream);
  device_buffer<float> seen(length);
  fill(seen, before, stream);
  gpu::drain(stream);
  gpu::gate gate(stream);
  fill(in, wanted, stream);
  auto work = all_reduce_async(in, out, stream, reduce_op::sum, group);
  CHECK_FALSE(work.done());
  CHECK_FALSE(work.synchronize(20ms));
  work.wait(other);
  copy(out, seen, other);
  CHECK(other.busy());
  CHECK(stream.busy());
  gate.open();
  CHECK(work.synchronize(gpu::held_at_most));
  CHECK(work.done());
  CHECK(holds(seen, wanted, other));
}

TEST_CASE("started operations: they run beside their stream's next kernel") {
  used_group here;
  auto& [device, group, stream, other, in, out] = here;
  fill(in, wanted, stream);
  fill(out, before, stream);
  gpu::drain(stream);
  auto work = all_reduce_async(in, out, stream, reduce_op::sum, group);
  gpu::gate gate(stream);
  work.synchronize();  // does not wait for the gate, which is closed
  CHECK(stream.busy());
  CHECK(holds(out, wanted, other));
  CHECK(stream.busy());
}

TEST_CASE("started operations: dropping a work orders its stream") {
  used_group here;
  auto& [device, group, stream, other, in, out] = here;
  device_buffer<float> last(length);
  fill(in, before, stream);
  fill(out, before, stream);
  fill(last, before, stream);
  gpu::drain(stream);
  {
    gpu::gate gate(stream);
    fill(in, wanted, stream);
    {
      const auto dropped = all_gather_async(in, out, stream, group);
    }
    {
      auto first = all_to_all_async(out, last, stream, group);
      const auto moved = std::move(first);
    }
    CHECK(stream.busy());
  }
  CHECK(holds(last, wanted, stream));
}

TEST_CASE("started operations: every form returns at once behind a long kernel") {
  used_group here;
  auto& [device, group, stream, other, in, out] = here;
  const std::array<std::size_t, 1> all{length};
  const auto behind = [&](const char* name, auto start) {
    INFO(name);
    fill(in, before, stream);
    fill(out, before, stream);
    gpu::drain(stream);
    gpu::gate gate(stream);
    fill(in, wanted, stream);
    auto work = start();
    CHECK_FALSE(work.done());
    work.wait(other);
    CHECK(other.busy());
    gate.open();
    CHECK(holds(out, wanted, other));
    CHECK(work.done());
  };
  behind("all_reduce", [&] { return all_reduce_async(in, out, stream, reduce_op::sum, group); });
  behind("reduce", [&] { return reduce_async(in, out, stream, 0, reduce_op::sum, group); });
  behind("reduce_scatter", [&] { return reduce_scatter_async(in, out, stream, reduce_op::sum, group); });
  behind("uneven reduce_scatter", [&] { return reduce_scatter_async(in, out, all, stream, reduce_op::sum, group); });
  behind("all_gather", [&] { return all_gather_async(in, out, stream, group); });
  behind("uneven all_gather", [&] { return all_gather_async(in, out, all, stream, group); });
  behind("gather", [&] { return gather_async(in, out, stream, 0, group); });
  behind("uneven gather", [&] { return gather_async(in, out, all, stream, 0, group); });
  behind("scatter", [&] { return scatter_async(in, out, stream, 0, group); });
  behind("uneven scatter", [&] { return scatter_async(in, out, all, stream, 0, group); });
  behind("all_to_all", [&] { return all_to_all_async(in, out, stream, group); });
  behind("uneven all_to_all", [&] { return all_to_all_async(in, all, out, all, stream, group); });
}

TEST_CASE("synchronize: it ends at the deadline when a stream never completes") {
  used_group here;
  auto& [device, group, stream, other, in, out] = here;
  const process_group own;
  all_reduce(in, out, stream, reduce_op::sum, own);
  synchronize(stream, own);
  gpu::gate gate(stream);
  const auto problem = error_of<timeout_error>([&] { synchronize(stream, own.with_timeout(200ms)); });
  CHECK(gpu::says(problem, "has not ended within"));
  CHECK(stream.busy());
}

TEST_CASE("device_event: it orders streams") {
  used_group here;
  auto& [device, group, stream, other, in, out] = here;
  fill(out, before, stream);
  gpu::drain(stream);
  device_event mark(device_event::timing::on);
  device_event start(device_event::timing::on);
  start.record(stream);
  {
    gpu::gate gate(stream);
    fill(in, wanted, stream);
    mark.record(stream);
    CHECK_FALSE(mark.done());
    mark.order(other);
    all_reduce(in, out, other, reduce_op::sum, group);
    CHECK(other.busy());
  }
  CHECK(holds(out, wanted, other));
  CHECK(mark.done());
  mark.synchronize();
  CHECK(mark.since(start).count() > 0.0);
}

}  // namespace
