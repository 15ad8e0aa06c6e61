// SPDX-License-Identifier: MIT
// registered_buffer among several ranks on one GPU.
#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ranks.hpp"

namespace {

using namespace hfcomm;
using gpu::as_index;
using gpu::require;

std::vector<float> counted(std::size_t size, int rank) {
  std::vector<float> values(size);
  std::iota(values.begin(), values.end(), static_cast<float>(rank));
  return values;
}
/// The sum of all ranks' counted values.
std::vector<float> summed(std::size_t size, int ranks) {
  std::vector<float> values(size);
  for (std::size_t index = 0; index < size; ++index) {
    values[index] = static_cast<float>(as_index(ranks) * index + as_index(ranks * (ranks - 1) / 2));
  }
  return values;
}

/// Checks reductions of the whole buffer, of a part, and out of place.
void check_operations(const gpu::stream& stream, std::size_t size, const process_group& group) {
  registered_buffer<float> data(size, group);
  registered_buffer<float> sums(size, group);
  const auto mine = counted(size, group.rank());
  const auto want = summed(size, group.size());
  copy(mine, data, stream);
  all_reduce(data, sums, stream, reduce_op::sum, group);
  require(gpu::on_host(sums, stream) == want, "sums apart of " + std::to_string(size));
  all_reduce(data, stream, reduce_op::sum, group);
  require(gpu::on_host(data, stream) == want, "sums in place of " + std::to_string(size));
  if (size > 10) {
    copy(mine, data, stream);
    all_reduce(data.span().subspan(5, size - 10), stream, reduce_op::sum, group);
    auto partly = mine;
    std::copy(want.begin() + 5, want.end() - 5, partly.begin() + 5);
    require(gpu::on_host(data, stream) == partly, "sums of a part of " + std::to_string(size));
  }
  copy(mine, data, stream);
  broadcast(data, stream, group.size() - 1, group);
  require(gpu::on_host(data, stream) == counted(size, group.size() - 1), "broadcast of " + std::to_string(size));
  synchronize(stream, group);
}

void check_sizes(const gpu::stream& stream) {
  for (const std::size_t size : {0UL, 1UL, 1000UL, 131'073UL, (1UL << 20) + 1}) {
    check_operations(stream, size, world());
  }
}

TEST_CASE("registered_buffer: operations of all sizes work on it") {
  gpu::at_two_and_four("registered_buffer: operations of all sizes work on it", check_sizes);
}

TEST_CASE("registered_buffer: operations of all sizes work on it with NCCL_CUMEM_ENABLE") {
  gpu::at_two_and_four("registered_buffer: operations of all sizes work on it with NCCL_CUMEM_ENABLE",
                       [](const gpu::stream& stream) {
                         gpu::set_variable("NCCL_CUMEM_ENABLE", "1");  // read with the first call of NCCL
                         check_sizes(stream);
                       });
}

TEST_CASE("registered_buffer: it outlives its group") {
  if (gpu::without_ranks("registered_buffer: it outlives its group")) {
    return;
  }
  gpu::run_ranks("outlives", 2, [](const gpu::stream& stream) {
    std::optional<registered_buffer<float>> data;
    {
      const process_group both = world().split(0);
      data.emplace(1000, both);
      check_operations(stream, 1000, both);
    }
    const auto mine = counted(1000, world().rank());
    copy(mine, *data, stream);
    require(gpu::on_host(*data, stream) == mine, "lost with its group");
    data.reset();
    barrier(stream);
    synchronize(stream);
  });
}

}  // namespace
