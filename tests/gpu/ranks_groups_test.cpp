// SPDX-License-Identifier: MIT
// Groups, scopes, started operations and graphs among several ranks on one GPU.
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ranks.hpp"

namespace {

using namespace hfcomm;
using namespace std::chrono_literals;
using gpu::as_index;
using gpu::require;

void check_all(const device_buffer<float>& data, float want, const gpu::stream& stream, const std::string& what) {
  const auto got = gpu::on_host(data, stream);
  require(got == std::vector<float>(data.size(), want),
          what + ": it begins with " + std::to_string(got.front()) + ", not " + std::to_string(want));
}

TEST_CASE("split: operations of halves and of the world may alternate") {
  gpu::at_two_and_four("split: operations of halves and of the world may alternate", [](const gpu::stream& stream) {
    connect_device();
    const int ranks = world().size();
    const int me = world().rank();
    auto data = gpu::on_device(std::vector<float>(1003, 1.0F), stream);
    for (int turn = 0; turn < 2; ++turn) {
      const process_group half = world().split(me % 2, ranks - me);  // the other way round
      require(half.size() == ranks / 2 && half.rank() == (ranks - 1 - me) / 2, "the half is not as wanted");
      require(half.device_backend() == (half.size() == 1 ? "cuda" : "nccl"), "the half has no device plane");
      gpu::put(std::vector<float>(1003, static_cast<float>(me + 1)), data, stream);
      all_reduce(data, stream, reduce_op::sum, half);
      float want = 0;
      for (int rank = me % 2; rank < ranks; rank += 2) {
        want += static_cast<float>(rank + 1);
      }
      synchronize(stream, half);
      check_all(data, want, stream, "in the half");
      all_reduce(data, stream, reduce_op::sum);
      synchronize(stream);
      check_all(data, static_cast<float>(ranks * (ranks + 1) / 2 * (ranks / 2)), stream, "in all");
    }
    const auto without_last = world().subgroup({0, 1});
    require(without_last.has_value() == (me < 2), "the subgroup is not as wanted");
    if (without_last) {
      gpu::put(std::vector<float>(1003, 2.0F), data, stream);
      all_reduce(data, stream, reduce_op::product, *without_last);
      synchronize(stream, *without_last);
      check_all(data, 4.0F, stream, "in the subgroup");
    }
    barrier();
  });
}

TEST_CASE("nccl_group_scope: it holds 1500 small operations") {
  gpu::at_two_and_four("nccl_group_scope: it holds 1500 small operations", [](const gpu::stream& stream) {
    const std::size_t pieces = world().size() == 2 ? 1500 : 300;
    std::vector<float> mine(pieces);
    std::vector<float> want(pieces);
    for (std::size_t index = 0; index < pieces; ++index) {
      mine[index] = static_cast<float>(index * as_index(world().rank() + 1));
      want[index] = static_cast<float>(index * as_index(world().size() * (world().size() + 1) / 2));
    }
    auto data = gpu::on_device(mine, stream);
    {
      nccl_group_scope together;
      for (std::size_t index = 0; index < pieces; ++index) {
        all_reduce(data.span().subspan(index, 1), stream);
      }
      together.end();
    }
    synchronize(stream);
    require(gpu::on_host(data, stream) == want, "the sums are wrong");
  });
}

TEST_CASE("nccl_group_scope: it holds messages from all ranks to all") {
  gpu::at_two_and_four("nccl_group_scope: it holds messages from all ranks to all", [](const gpu::stream& stream) {
    connect_device();
    const int ranks = world().size();
    const int me = world().rank();
    constexpr std::size_t each = 777;
    const auto mine = gpu::on_device(std::vector<int>(each, me), stream);
    auto theirs = gpu::on_device(std::vector<int>(each * as_index(ranks), -1), stream);
    {
      const nccl_group_scope together;
      for (int other = 0; other < ranks; ++other) {
        if (other != me) {
          send(mine, stream, other);
        }
      }
      for (int other = ranks; other-- > 0;) {
        if (other != me) {
          recv(theirs.span().subspan(each * as_index(other), each), stream, other);
        }
      }
    }
    synchronize(stream);
    const auto got = gpu::on_host(theirs, stream);
    for (std::size_t index = 0; index < got.size(); ++index) {
      const int other = static_cast<int>(index / each);
      require(got[index] == (other == me ? -1 : other), "element " + std::to_string(index) + " is wrong");
    }
  });
}

TEST_CASE("started operations: computation continues beside them") {
  gpu::at_two_and_four("started operations: computation continues beside them", [](const gpu::stream& stream) {
    auto data = gpu::on_device(std::vector<float>(1003, 1.0F), stream);
    auto other = gpu::on_device(std::vector<float>(1003, 1.0F), stream);
    all_reduce_async(data, stream, reduce_op::max).synchronize();
    const auto ranks = static_cast<float>(world().size());
    for (int turn = 0; turn < 5; ++turn) {
      gpu::put(std::vector<float>(1003, 3.0F), data, stream);
      auto work = all_reduce_async(data, stream);
      gpu::multiply(stream.get(), other.data(), other.size(), 2.0F);  // not behind it
      work.wait(stream);
      gpu::multiply(stream.get(), data.data(), data.size(), 2.0F);  // behind it
      check_all(data, 6.0F * ranks, stream, "turn " + std::to_string(turn));
    }
    check_all(other, 32.0F, stream, "beside it");
  });
}

TEST_CASE("started operations: their stream is not held up") {
  if (gpu::without_ranks("started operations: their stream is not held up")) {
    return;
  }
  gpu::run_ranks("beside", 2, [](const gpu::stream& stream) {
    auto data = gpu::on_device(std::vector<float>(1003, 1.0F), stream);
    auto other = gpu::on_device(std::vector<float>(1003, 1.0F), stream);
    all_reduce(data, stream);
    synchronize(stream);
    if (world().rank() == 0) {
      auto work = all_reduce_async(data, stream);
      gpu::multiply(stream.get(), other.data(), other.size(), 2.0F);
      synchronize(stream);  // rank 1 has not come, and the computation does not wait for it
      require(!work.done(), "it was done without rank 1");
      require(!work.synchronize(20ms), "it was done without rank 1");
      barrier();
      work.synchronize();
    } else {
      barrier();
      all_reduce(data, stream);
      synchronize(stream);
    }
    check_all(data, 4.0F, stream, "all_reduce");
  });
}

TEST_CASE("device graphs: operations among ranks are replayed") {
  gpu::at_two_and_four("device graphs: operations among ranks are replayed", [](const gpu::stream& stream) {
    const auto ranks = static_cast<float>(world().size());
    const auto n = as_index(world().size());
    const auto me = as_index(world().rank());
    auto data = gpu::on_device(std::vector<float>(1003, 1.0F), stream);
    device_buffer<float> all(1003 * n);
    all_reduce_async(data, stream, reduce_op::max).synchronize();
    all_gather(data, all, stream);
    synchronize(stream);
    {
      const gpu::graph captured(stream.get(), [&] {
        all_reduce(data, stream);
        auto beside = all_reduce_async(data, stream);
        beside.wait(stream);
        gpu::multiply(stream.get(), data.data(), data.size(), 0.5F);
        all_gather(data, all, stream);
      });
      float want = 1;
      for (int turn = 0; turn < 3; ++turn) {
        captured.launch(stream.get());
        want *= ranks * ranks / 2;
      }
      synchronize(stream);
      check_all(data, want, stream, "the graph's sums");
      check_all(all, want, stream, "what the graph gathered");
      // Between replays, operations outside of the graph.
      gpu::put(std::vector<float>(1003, static_cast<float>(me)), data, stream);
      all_reduce(data, stream, reduce_op::max);
      captured.launch(stream.get());
      synchronize(stream);
      check_all(data, (ranks - 1) * ranks * ranks / 2, stream, "a replay behind another operation");
    }
    barrier();
  });
}

}  // namespace
