// SPDX-License-Identifier: MIT
// host_reduce [--ranks N] [--mib N] [--rounds N] [--double]: compares three ways to average the gradients of a model on
// a GPU, in turns: ddp_options::host_reduce, distributed_data_parallel over NCCL, and the naive way (copy all down,
// all_reduce, copy all up). Medians over the rounds of a pass's milliseconds, on the slowest rank, and GB/s of
// gradients.
//
// Each rank is a process with a GPU of its own. Where there are fewer GPUs than ranks they share them. NCCL refuses
// that, so each process then tells it that it is a machine of its own (NCCL_HOSTID); its figures are those of the
// loopback interface. --double takes the test double instead of CUDA and NCCL: for trying the program where there is no
// GPU.

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/comm.hpp>
#include <hfcomm/ddp.hpp>
#include <hfcomm/nccl.hpp>

#include "gpu_program.hpp"

namespace {

using bench::median;
using bench::require;

/// Gradients of 16 equal layers on the device, and what averages them.
class model {
 public:
  model(std::size_t bytes, hfcomm::stream_ref stream)
      : stream_(stream), values_(bytes / sizeof(float)), gradients_(values_.size()), on_host_(values_.size()) {
    require(hfcomm::cuda::runtime().cudaMemsetAsync(gradients_.data(), 0, bytes, stream.get()), "cudaMemsetAsync");
  }

  [[nodiscard]] hfcomm::distributed_data_parallel make_ddp(bool host_reduce) {
    hfcomm::ddp_options options;
    options.stream = stream_;
    options.host_reduce = host_reduce;
    std::vector<hfcomm::ddp_parameter> parameters;
    const std::size_t each = values_.size() / layers;
    for (std::size_t index = 0; index < layers; ++index) {
      parameters.push_back(hfcomm::named_parameter("layer " + std::to_string(index),
                                                   values_.span().subspan(index * each, each),
                                                   gradients_.span().subspan(index * each, each)));
    }
    return hfcomm::distributed_data_parallel(std::move(parameters), {}, std::move(options));
  }

  static void pass(hfcomm::distributed_data_parallel& ddp) {
    ddp.begin_forward();
    for (std::size_t index = layers; index-- > 0;) {
      ddp.mark_ready(index);
    }
    ddp.finish();
  }
  void pass_naively() {
    hfcomm::copy(gradients_, on_host_, stream_);
    require(hfcomm::cuda::runtime().cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
    hfcomm::all_reduce(std::span(on_host_.data(), on_host_.size()), hfcomm::reduce_op::average);
    hfcomm::copy(on_host_, gradients_, stream_);
  }

 private:
  static constexpr std::size_t layers = 16;

  hfcomm::stream_ref stream_;
  hfcomm::device_buffer<float> values_;
  hfcomm::device_buffer<float> gradients_;
  hfcomm::pinned_buffer<float> on_host_;
};

struct way {
  const char* name;
  std::function<void()> pass;
  std::vector<double> milliseconds{};
};

void time(way& one, cudaStream_t stream) {
  hfcomm::barrier();
  const auto start = std::chrono::steady_clock::now();
  one.pass();
  require(hfcomm::cuda::runtime().cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  one.milliseconds.push_back(hfcomm::all_reduce(took.count(), hfcomm::reduce_op::max));
}

void measure(const bench::gpu_settings& wanted, cudaStream_t stream) {
  const std::size_t bytes = wanted.size << 20;
  model gradients(bytes, stream);
  auto on_host = gradients.make_ddp(true);
  auto over_nccl = gradients.make_ddp(false);
  std::vector<way> ways{{"host_reduce", [&] { model::pass(on_host); }},
                        {"NCCL", [&] { model::pass(over_nccl); }},
                        {"naive", [&] { gradients.pass_naively(); }}};
  for (int round = -1; round < wanted.rounds; ++round) {
    for (way& one : ways) {
      time(one, stream);
      if (round < 0) {
        one.milliseconds.clear();  // the first turn warms up
      }
    }
  }
  if (hfcomm::is_main_process()) {
    std::printf("%d ranks, %zu MiB of gradients%s\n%-12s %12s %10s\n", hfcomm::world_size(), wanted.size,
                wanted.on_double ? " (the test double: the figures mean nothing)" : "", "way", "ms", "GB/s");
    for (way& one : ways) {
      const double middle = median(one.milliseconds);
      std::printf("%-12s %12.3f %10.2f\n", one.name, middle, static_cast<double>(bytes) / middle / 1e6);
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  return bench::run_on_gpus("host_reduce", "--mib", {.ranks = 2, .size = 512}, count, arguments, measure);
}
