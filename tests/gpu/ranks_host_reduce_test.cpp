// SPDX-License-Identifier: MIT
// Gradients of several ranks on one GPU that are averaged on the CPU. Needs no NCCL, so the ranks need no machines of
// their own.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include <hfcomm/ddp.hpp>

#include "ranks.hpp"

namespace {

using namespace hfcomm;
using gpu::as_index;
using gpu::require;

ddp_options staged(const gpu::stream& stream) {
  ddp_options options;
  options.host_reduce = true;
  options.stream = stream;
  return options;
}

/// Runs `body` on 1, 2 and 4 ranks, which share the GPU.
void at_each_size(const std::string& job, const gpu::rank_main& body) {
  for (const int ranks : {1, 2, 4}) {
    gpu::run_ranks(job, ranks, [=](const gpu::stream& stream) {
      body(stream);
      gpu::drain(stream);
      barrier();
    });
  }
}

template <class T>
std::vector<T> gradients_of(std::size_t size, int seed) {
  std::vector<T> values(size);
  for (std::size_t index = 0; index < size; ++index) {
    values[index] = T(static_cast<float>((index * 7919 + as_index(seed) * 104'729) % 10'007) / 1000.0F - 5.0F);
  }
  return values;
}

/// Averages the same gradients on the device with host_reduce and in host memory, and compares the bits.
template <class T>
void check_bits(const gpu::stream& stream, std::size_t size) {
  std::vector<T> host_values(size);
  std::vector<T> host_gradients(size);
  const auto mine = gpu::on_device(std::vector<T>(size, T(static_cast<float>(rank()) + 2.0F)), stream);
  device_buffer<T> values(size);
  copy(mine, values, stream);
  device_buffer<T> gradients(size);
  distributed_data_parallel on_device({named_parameter("p", values, gradients)}, {}, staged(stream));
  distributed_data_parallel on_host({named_parameter("p", host_values, host_gradients)});
  require(gpu::on_host(values, stream) == std::vector<T>(size, T(2.0F)), "the values are not rank 0's");
  for (int pass = 0; pass < 3; ++pass) {
    std::ranges::copy(gradients_of<T>(size, rank() + 10 * pass), host_gradients.begin());
    on_device.begin_forward();
    gpu::put(host_gradients, gradients, stream);
    on_device.mark_ready(0);
    on_device.finish();
    on_host.begin_forward();
    on_host.mark_ready(0);
    on_host.finish();
    const auto found = gpu::on_host(gradients, stream);
    require(std::memcmp(found.data(), host_gradients.data(), size * sizeof(T)) == 0,
            "other bits than in host memory: " + std::to_string(size) + " elements in pass " + std::to_string(pass));
  }
}

TEST_CASE("host_reduce on a GPU: averages have the bits of gradients in host memory") {
  at_each_size("bits", [](const gpu::stream& stream) {
    for (const std::size_t size : {1UL, 1000UL, 3'000'001UL}) {
      check_bits<float>(stream, size);
      check_bits<bfloat16>(stream, size);
    }
    check_bits<double>(stream, 1'000'003);
    check_bits<float16>(stream, 1'000'003);
  });
}

TEST_CASE("host_reduce on a GPU: kernels before mark_ready and after finish are in order with the copies") {
  at_each_size("order", [](const gpu::stream& stream) {
    constexpr std::size_t size = 5'000'000;
    device_buffer<float> values(size);
    device_buffer<float> gradients(size);
    distributed_data_parallel ddp({named_parameter("p", values, gradients)}, {}, staged(stream));
    for (int pass = 0; pass < 5; ++pass) {
      const float mine = static_cast<float>(rank() + pass + 1);
      gpu::put(std::vector<float>(size, mine), gradients, stream);
      ddp.begin_forward();
      {
        gpu::gate held(stream);
        gpu::multiply(stream.get(), gradients.data(), size, 2.0F);
        ddp.mark_ready(0);  // returns while the stream is held
        require(stream.busy(), "mark_ready has waited for the stream");
      }
      ddp.finish();
      gpu::multiply(stream.get(), gradients.data(), size, 4.0F);
      const float mean = static_cast<float>(world_size() - 1) / 2.0F + static_cast<float>(pass + 1);
      require(gpu::on_host(gradients, stream) == std::vector<float>(size, 8.0F * mean),
              "a kernel is out of order in pass " + std::to_string(pass));
    }
  });
}

}  // namespace
