// SPDX-License-Identifier: MIT
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "device_ranks.hpp"

namespace {

using namespace hfcomm;
using namespace device_ranks;

using number = std::variant<device_span<float>, device_span<double>, device_span<std::int64_t>>;

TEST_CASE("device dictionaries: numbers of several types are reduced by one launch") {
  at_every_size([](const process_group& world, stream_ref stream) {
    const auto n = static_cast<float>(world.size());
    const auto me = static_cast<float>(world.rank());
    auto floats = on_device(std::vector<float>{me, 1.0F}, stream);
    auto doubles = on_device(std::vector<double>{me + 0.5}, stream);
    auto whole = on_device(std::vector<std::int64_t>{world.rank()}, stream);
    std::map<std::string, device_span<float>> losses{{"loss", floats.span().first(1)},
                                                     {"accuracy", floats.span().subspan(1, 1)}};
    connect_device(world);
    barrier(world);
    const auto launches = fake_cuda::calls("ncclGroupEnd");
    barrier(world);
    all_reduce_dict(losses, stream, reduce_op::average, world);
    CHECK((on_host(floats, stream) == std::vector<float>{(n - 1) / 2, 1.0F}));
    barrier(world);
    CHECK(fake_cuda::calls("ncclGroupEnd") == launches + (world.size() > 1 ? as_index(world.size()) : 0));
    barrier(world);

    const std::unordered_map<std::string, number> mixed{
        {"a", floats.span().first(1)}, {"b", doubles.span()}, {"c", whole.span()}};
    reduce_dict(mixed, stream, reduce_op::sum, world.size() - 1, world);
    const bool leads = world.rank() == world.size() - 1;
    CHECK(on_host(floats, stream)[0] == (leads ? n * (n - 1) / 2 : (n - 1) / 2));
    CHECK(on_host(doubles, stream)[0] == (leads ? static_cast<double>(n * n) / 2 : static_cast<double>(me) + 0.5));
    CHECK(on_host(whole, stream)[0] == (leads ? world.size() * (world.size() - 1) / 2 : world.rank()));
  });
}

TEST_CASE(
    "device dictionaries: different keys or types, and values that cannot be reduced, are errors that name the key") {
  const fake_cuda::install fake;
  run_devices(3, [](const process_group& world, stream_ref stream) {
    device_buffer<float> one(2);
    device_buffer<std::int64_t> whole(1);
    std::map<std::string, number> values{{"loss", one.span().first(1)}};
    if (world.rank() != 1) {
      values.emplace("accuracy", one.span().subspan(1, 1));
    }
    CHECK(says(error_of<mismatch_error>([&] { all_reduce_dict(values, stream, reduce_op::sum, world); }),
               "rank 1 lacks \"accuracy\""));
    values.erase("accuracy");
    values["loss"] = whole.span();
    CHECK(says(error_of<usage_error>([&] { all_reduce_dict(values, stream, reduce_op::average, world); }), "\"loss\""));
    values["loss"] = one.span();
    CHECK(says(error_of<usage_error>([&] { reduce_dict(values, stream, reduce_op::sum, 0, world); }), "2 elements"));
    CHECK_THROWS_AS(reduce_dict(values, stream, reduce_op::sum, 7, world), usage_error);
    values["loss"] = one.span().first(1);
    if (world.rank() == 2) {
      values["loss"] = whole.span();
    }
    CHECK(says(error_of<mismatch_error>([&] { all_reduce_dict(values, stream, reduce_op::sum, world); }),
               "\"loss\" is int64 on rank 2, float32 on ranks 0 and 1"));
    values["loss"] = one.span().first(1);
    all_reduce_dict(values, stream, reduce_op::sum, world);
    synchronize(stream, world);
  });
}

}  // namespace
