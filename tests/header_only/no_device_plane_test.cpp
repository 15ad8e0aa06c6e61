// SPDX-License-Identifier: MIT
#include "../multi_rank/ranks.hpp"

#include <array>

#include <hfcomm/ddp.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

TEST_CASE("distributed_data_parallel: parameters on a device without <hfcomm/nccl.hpp> are a usage_error") {
  testing::run_ranks(2, [](const process_group& world) {
    std::array<float, 4> value{};
    std::array<float, 4> gradient{};
    const device_span<float> values(value.data(), value.size());  // never read: there is no device
    const device_span<float> gradients(gradient.data(), gradient.size());
    const auto problem = error_of<usage_error>(
        [&] { const distributed_data_parallel model({named_parameter("weight", values, gradients)}, {}, {}, world); });
    CHECK_CONTAINS(problem.what(), "include <hfcomm/nccl.hpp>");
    barrier(world);
    CHECK_FALSE(world.broken());
  });
}

}  // namespace
