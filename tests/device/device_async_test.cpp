// SPDX-License-Identifier: MIT
#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "device_ranks.hpp"

namespace {

using namespace hfcomm;
using namespace device_ranks;
using namespace std::chrono_literals;

/// Holds a stream until it is opened, as a long kernel would.
class gate {
 public:
  explicit gate(stream_ref stream) {
    fake_cuda::launch(stream.get(), [this] { opened_.wait(false); });
  }
  gate(const gate&) = delete;
  gate& operator=(const gate&) = delete;
  ~gate() { open(); }
  void open() {
    opened_.store(true);
    opened_.notify_all();
  }

 private:
  std::atomic<bool> opened_{false};
};

void fill(device_buffer<float>& data, float value, stream_ref stream) {
  fake_cuda::launch(stream.get(),
                    [memory = data.data(), count = data.size(), value] { std::fill_n(memory, count, value); });
}

TEST_CASE("device work: it runs after the stream's earlier work, and wait orders the stream's later work after it") {
  at_every_size([](const process_group& world, stream_ref stream) {
    connect_device(world);
    device_buffer<float> data(100);
    const auto n = static_cast<float>(world.size());
    auto held = std::make_unique<gate>(stream);
    fill(data, 2.0F, stream);
    auto work = all_reduce_async(data, stream, reduce_op::sum, world);
    CHECK_FALSE(work.done());
    CHECK_FALSE(work.synchronize(5ms));
    work.wait(stream);
    std::vector<float> seen(100);
    copy(data, seen, stream);
    held->open();
    work.synchronize();
    CHECK(work.done());
    synchronize(stream, world);
    CHECK((seen == std::vector<float>(100, 2.0F * n)));
  });
}

TEST_CASE("device work: the caller's stream continues beside it until it waits") {
  const fake_cuda::install fake;
  run_devices(2, [](const process_group& world, stream_ref stream) {
    connect_device(world);
    device_buffer<float> data(10);
    fill(data, 1.0F, stream);
    synchronize(stream, world);
    if (world.rank() == 0) {
      auto work = all_reduce_async(data, stream, reduce_op::sum, world);
      std::atomic<bool> computed{false};
      fake_cuda::launch(stream.get(), [&] { computed.store(true); });
      synchronize(stream, world);  // the other rank has not come, and the computation does not wait for it
      CHECK(computed.load());
      CHECK_FALSE(work.done());
      barrier(world);
      work.synchronize();
    } else {
      barrier(world);
      all_reduce(data, stream, reduce_op::sum, world);
    }
    CHECK((on_host(data, stream) == std::vector<float>(10, 2.0F)));
  });
}

TEST_CASE("device work: it may be dropped and moved, in every form") {
  at_every_size([](const process_group& world, stream_ref stream) {
    const auto n = as_index(world.size());
    device_buffer<float> one(4);
    device_buffer<float> all(4 * n);
    device_buffer<float> more(4 * n);
    const std::vector<std::size_t> fours(n, 4);
    for (int turn = 0; turn < 3; ++turn) {
      fill(one, static_cast<float>(world.rank() + 1), stream);
      {
        const auto dropped = all_gather_async(one, all, stream, world);
      }
      // The stream is behind it now.
      {
        const auto dropped = all_to_all_async(all, more, stream, world);
      }
      std::vector<float> want;
      for (std::size_t rank = 0; rank < n; ++rank) {
        want.insert(want.end(), 4, static_cast<float>(world.rank() + 1));
      }
      CHECK((on_host(more, stream) == want));
    }
    std::optional<device_work> kept;
    kept.emplace(reduce_async(one, stream, 0, reduce_op::max, world));
    device_work moved = std::move(*kept);
    CHECK_THROWS_AS((void)kept->done(), usage_error);
    kept.reset();
    moved = broadcast_async(one, stream, 0, world);
    moved.synchronize();
    CHECK((on_host(one, stream) == std::vector<float>(4, static_cast<float>(n))));
    reduce_scatter_async(all, one, stream, reduce_op::sum, world).wait(stream);
    reduce_scatter_async(all, one, fours, stream, reduce_op::sum, world).wait(stream);
    all_gather_async(one, all, fours, stream, world).wait(stream);
    gather_async(one, all, stream, 0, world).wait(stream);
    gather_async(one, all, fours, stream, 0, world).wait(stream);
    scatter_async(all, one, stream, 0, world).wait(stream);
    scatter_async(all, one, fours, stream, 0, world).wait(stream);
    all_to_all_async(all, fours, more, fours, stream, world).wait(stream);
    barrier_async(stream, world).wait(stream);
    if (world.size() > 1) {
      const int other = world.rank() ^ 1;
      if (other < world.size()) {
        const nccl_group_scope together(world);
        send(one, stream, other, world);
        recv(more.span().first(4), stream, other, world);
      }
    }
    synchronize(stream, world);
  });
}

TEST_CASE("device work: events are reused, so that a loop creates none") {
  const fake_cuda::install fake;
  run_devices(2, [](const process_group& world, stream_ref stream) {
    device_buffer<float> data(10);
    fill(data, 1.0F, stream);
    all_reduce_async(data, stream, reduce_op::max, world).synchronize();
    barrier(world);
    const auto made = fake_cuda::calls("cudaEventCreateWithFlags");
    barrier(world);
    for (int turn = 0; turn < 20; ++turn) {
      auto first = all_reduce_async(data, stream, reduce_op::max, world);
      first.wait(stream);
    }
    barrier(world);
    CHECK(fake_cuda::calls("cudaEventCreateWithFlags") == made);
    synchronize(stream, world);
  });
}

TEST_CASE("nccl_group_scope: operations are launched as one, and sends and receives may come in any order") {
  at_every_size([](const process_group& world, stream_ref stream) {
    connect_device(world);
    const auto n = as_index(world.size());
    device_buffer<float> data(8);
    device_buffer<float> parts(8 * n);
    device_buffer<float> theirs(8 * n);
    fill(data, 1.0F, stream);
    fill(parts, static_cast<float>(world.rank()), stream);
    {
      nccl_group_scope together(world);
      CHECK_THROWS_AS((void)nccl_group_scope(world), usage_error);
      CHECK_THROWS_AS((void)all_reduce_async(data, stream, reduce_op::sum, world), usage_error);
      for (std::size_t piece = 0; piece < 8; ++piece) {
        all_reduce(data.span().subspan(piece, 1), stream, reduce_op::sum, world);
      }
      for (int other = 0; other < world.size(); ++other) {
        if (other != world.rank()) {
          send(parts.span().subspan(as_index(other) * 8, 8), stream, other, world);
          recv(theirs.span().subspan(as_index(other) * 8, 8), stream, other, world);
        }
      }
      together.end();
      together.end();
    }
    CHECK((on_host(data, stream) == std::vector<float>(8, static_cast<float>(n))));
    const auto got = on_host(theirs, stream);
    for (int other = 0; other < world.size(); ++other) {
      if (other != world.rank()) {
        CHECK(got[as_index(other) * 8 + 7] == static_cast<float>(other));
      }
    }
  });
}

TEST_CASE("nccl_group_scope: it can be ended early, and ends when an exception leaves it") {
  const fake_cuda::install fake;
  run_devices(2, [](const process_group& world, stream_ref stream) {
    connect_device(world);
    device_buffer<float> data(1);
    fill(data, 1.0F, stream);
    barrier(world);
    const auto before = fake_cuda::calls("ncclGroupEnd");
    barrier(world);
    {
      const nccl_group_scope together(world);
      for (int turn = 0; turn < 2500; ++turn) {
        all_reduce(data, stream, reduce_op::max, world);
      }
    }
    barrier(world);
    CHECK(fake_cuda::calls("ncclGroupEnd") == before + 2 * 3);
    barrier(world);
    const auto leave = [&] {
      const nccl_group_scope together(world);
      all_reduce(data, stream, reduce_op::sum, world);
      throw std::runtime_error("out of here");
    };
    CHECK_THROWS_AS(leave(), std::runtime_error);
    CHECK((on_host(data, stream) == std::vector<float>(1, 2.0F)));
    barrier(world);
    if (world.rank() == 1) {
      fake_cuda::fail_call("ncclGroupEnd", 1, ncclInvalidUsage, 1);
    }
    barrier(world);
    {
      const nccl_group_scope together(world);
    }
    if (world.rank() == 1) {
      CHECK_THROWS_AS(barrier(world), usage_error);
    } else {
      CHECK_THROWS_AS(barrier(world), peer_error);
    }
  });
}

TEST_CASE("device graphs: operations are captured once and replayed often") {
  at_every_size([](const process_group& world, stream_ref stream) {
    connect_device(world);
    device_buffer<float> data(16);
    fill(data, 1.0F, stream);
    all_reduce(data, stream, reduce_op::max, world);  // warm
    synchronize(stream, world);
    fake_cuda::begin_capture(stream.get());
    all_reduce(data, stream, reduce_op::sum, world);
    {
      auto beside = all_reduce_async(data, stream, reduce_op::sum, world);
      beside.wait(stream);
    }
    auto graph = fake_cuda::end_capture(stream.get());
    float want = 1.0F;
    const auto n = static_cast<float>(world.size());
    for (int turn = 0; turn < 3; ++turn) {
      graph.launch(stream.get());
      want *= n * n;
    }
    synchronize(stream, world);
    CHECK((on_host(data, stream) == std::vector<float>(16, want)));
  });
}

}  // namespace
