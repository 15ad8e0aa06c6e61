// SPDX-License-Identifier: MIT
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "device_ranks.hpp"

namespace {

using namespace hfcomm;
using namespace device_ranks;

/// A value that every type can hold, and whose sums too.
template <class T>
T value_of(int rank, std::size_t index) {
  return static_cast<T>(static_cast<float>((index * 3 + as_index(rank)) % 5 + 1));
}

template <class T>
std::vector<T> values_of(int rank, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t index = 0; index < count; ++index) {
    values[index] = value_of<T>(rank, index);
  }
  return values;
}

/// The host plane's result for the same values.
template <class T>
std::vector<T> expected(const std::vector<T>& mine, reduce_op op, const process_group& world) {
  std::vector<T> values = mine;
  all_reduce(std::span(values), op, world);
  return values;
}

template <class T>
void check_type(const process_group& world, stream_ref stream) {
  INFO(std::string(to_string(element_type_of<T>)));
  for (const std::size_t count : each_of(0, 1, 3, 1000)) {
    const auto mine = values_of<T>(world.rank(), count);
    for (const reduce_kind kind : {reduce_kind::sum, reduce_kind::product, reduce_kind::min, reduce_kind::max,
                                   reduce_kind::average, reduce_kind::premultiplied_sum}) {
      if (!hfcomm::detail::valid(kind, element_type_of<T>)) {
        continue;
      }
      if (kind == reduce_kind::product && sizeof(T) == 1) {
        continue;  // eight factors are too much for a byte
      }
      reduce_op op(kind);
      if (kind == reduce_kind::premultiplied_sum) {
        op = reduce_op::premultiplied_sum(world.rank() % 2 == 0 ? 0.5 : 2.0);
      }
      const auto want = expected(mine, op, world);
      auto in = on_device(mine, stream);
      device_buffer<T> out(count);
      all_reduce(in, out, stream, op, world);
      CHECK(multi_rank::same_bits(on_host(out, stream), want));
      CHECK(multi_rank::same_bits(on_host(in, stream), mine));
      all_reduce(in, stream, op, world);
      CHECK(multi_rank::same_bits(on_host(in, stream), want));
    }
  }
}

TEST_CASE("device all_reduce: every operation works on every type") {
  at_every_size([](const process_group& world, stream_ref stream) {
    check_type<std::int8_t>(world, stream);
    check_type<std::uint8_t>(world, stream);
    check_type<std::int32_t>(world, stream);
    check_type<std::uint32_t>(world, stream);
    check_type<std::int64_t>(world, stream);
    check_type<std::uint64_t>(world, stream);
    check_type<float16>(world, stream);
    check_type<bfloat16>(world, stream);
    check_type<float8_e4m3>(world, stream);
    check_type<float8_e5m2>(world, stream);
    check_type<float>(world, stream);
    check_type<double>(world, stream);
  });
}

TEST_CASE("device all_reduce: CUDA's own narrow floats and odd counts work") {
  at_every_size([](const process_group& world, stream_ref stream) {
    const std::vector<__half> halves(5, __float2half(1.5F));
    auto data = on_device(halves, stream);
    all_reduce(data, stream, reduce_op::sum, world);
    CHECK(__half2float(on_host(data, stream)[4]) == 1.5F * static_cast<float>(world.size()));
    for (const std::size_t count : each_of(131'073, (1 << 20) + 1)) {
      auto ones = on_device(std::vector<float>(count, 1.0F), stream);
      all_reduce(ones, stream, reduce_op::average, world);
      CHECK((on_host(ones, stream) == std::vector<float>(count, 1.0F)));
    }
  });
}

TEST_CASE("device reduce: only the root gets the result") {
  at_every_size([](const process_group& world, stream_ref stream) {
    for (int root = 0; root < world.size(); ++root) {
      const auto mine = values_of<float>(world.rank(), 77);
      const auto want = expected(mine, reduce_op::sum, world);
      auto data = on_device(mine, stream);
      device_buffer<float> out(world.rank() == root ? 77 : 0);
      reduce(data, out, stream, root, reduce_op::sum, world);
      if (world.rank() == root) {
        CHECK((on_host(out, stream) == want));
      }
      reduce(data, stream, root, reduce_op::sum, world);
      CHECK((on_host(data, stream) == (world.rank() == root ? want : mine)));
    }
  });
}

TEST_CASE("device reduce_scatter: parts may be equal and uneven") {
  at_every_size([](const process_group& world, stream_ref stream) {
    const auto n = as_index(world.size());
    const auto me = as_index(world.rank());
    const auto mine = values_of<float>(world.rank(), 10 * n);
    const auto want = expected(mine, reduce_op::sum, world);
    auto in = on_device(mine, stream);
    device_buffer<float> out(10);
    reduce_scatter(in, out, stream, reduce_op::sum, world);
    const std::vector<float> part(want.begin() + static_cast<std::ptrdiff_t>(10 * me),
                                  want.begin() + static_cast<std::ptrdiff_t>(10 * (me + 1)));
    CHECK((on_host(out, stream) == part));
    reduce_scatter(in, in.span().subspan(10 * me, 10), stream, reduce_op::sum, world);
    CHECK((on_host(in.span().subspan(10 * me, 10), stream) == part));

    std::vector<std::size_t> counts(n);
    std::size_t begin = 0;
    std::size_t total = 0;
    for (std::size_t rank = 0; rank < n; ++rank) {
      counts[rank] = rank * 2;  // rank 0 gets nothing
      begin += rank < me ? counts[rank] : 0;
      total += counts[rank];
    }
    const auto longer = values_of<double>(world.rank(), total);
    const auto wanted = expected(longer, reduce_op::max, world);
    auto uneven = on_device(longer, stream);
    device_buffer<double> own(counts[me]);
    reduce_scatter(uneven, own, counts, stream, reduce_op::max, world);
    CHECK((on_host(own, stream) ==
           std::vector<double>(wanted.begin() + static_cast<std::ptrdiff_t>(begin),
                               wanted.begin() + static_cast<std::ptrdiff_t>(begin + counts[me]))));
  });
}

TEST_CASE("device reductions: after the first call nothing allocates, synchronizes or queries again") {
  const fake_cuda::install fake;
  run_devices(2, [](const process_group& world, stream_ref stream) {
    auto data = on_device(std::vector<float>(64, 1.0F), stream);
    all_reduce(data, stream, reduce_op::sum, world);
    synchronize(stream, world);
    barrier(world);
    const std::vector<const char*> slow{
        "cudaStreamSynchronize", "cudaEventSynchronize",     "cudaMalloc",    "cudaPointerGetAttributes",
        "cudaStreamQuery",       "cudaEventCreateWithFlags", "cudaGetDevice", "cudaEventRecord",
        "ncclCommGetAsyncError"};
    std::vector<std::size_t> before;
    for (const char* name : slow) {
      before.push_back(fake_cuda::calls(name));
    }
    const auto reductions = fake_cuda::calls("ncclAllReduce");
    barrier(world);
    for (int turn = 0; turn < 10; ++turn) {
      all_reduce(data, stream, reduce_op::max, world);
    }
    barrier(world);
    for (std::size_t index = 0; index < slow.size(); ++index) {
      INFO(slow[index]);
      CHECK(fake_cuda::calls(slow[index]) == before[index]);
    }
    CHECK(fake_cuda::calls("ncclAllReduce") == reductions + 20);
    barrier(world);
    synchronize(stream, world);
  });
}

}  // namespace
