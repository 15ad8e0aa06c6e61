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

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hfcomm/comm.hpp>
#include <hfcomm/nccl.hpp>

#include <fake/fake_cuda.hpp>

namespace {

struct settings {
  int ranks = 2;
  std::size_t mebibytes = 512;
  int rounds = 9;
  bool on_double = false;
};

std::optional<settings> parse(int count, char** arguments) {
  settings wanted;
  for (int index = 1; index < count; ++index) {
    const std::string_view option = arguments[index];
    if (option == "--double") {
      wanted.on_double = true;
      continue;
    }
    const long long value = index + 1 < count ? std::atoll(arguments[++index]) : 0;
    if (value <= 0) {
      return std::nullopt;
    }
    if (option == "--ranks") {
      wanted.ranks = static_cast<int>(value);
    } else if (option == "--mib") {
      wanted.mebibytes = static_cast<std::size_t>(value);
    } else if (option == "--rounds") {
      wanted.rounds = static_cast<int>(value);
    } else {
      return std::nullopt;
    }
  }
  return wanted;
}

void require(cudaError_t result, const char* what) {
  if (result != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + hfcomm::cuda::runtime().cudaGetErrorString(result));
  }
}

/// Makes the GPU current that this rank is to have; before NCCL has looked at its variables.
void choose_gpu() {
  const auto& cuda = hfcomm::cuda::runtime();
  int gpus = 0;
  require(cuda.cudaGetDeviceCount(&gpus), "cudaGetDeviceCount");
  if (gpus < hfcomm::local_size()) {
    const std::string name = "hfcomm-" + std::to_string(hfcomm::rank());
    for (const auto& [variable, value] : {std::pair{"NCCL_HOSTID", name.c_str()},
                                          {"NCCL_NET", "Socket"},
                                          {"NCCL_SOCKET_IFNAME", "lo"},
                                          {"NCCL_P2P_DISABLE", "1"},
                                          {"NCCL_SHM_DISABLE", "1"}}) {
      ::setenv(variable, value, 0);
    }
  }
  require(cuda.cudaSetDevice(hfcomm::local_rank() % gpus), "cudaSetDevice");
}

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

void measure(const settings& wanted) {
  std::optional<fake_cuda::install> pretended;
  if (wanted.on_double) {
    pretended.emplace();
  }
  choose_gpu();
  const auto& cuda = hfcomm::cuda::runtime();
  cudaStream_t stream = nullptr;
  require(cuda.cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), "cudaStreamCreateWithPriority");
  {
    const std::size_t bytes = wanted.mebibytes << 20;
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
      std::printf("%d ranks, %zu MiB of gradients%s\n%-12s %12s %10s\n", hfcomm::world_size(), wanted.mebibytes,
                  wanted.on_double ? " (the test double: the figures mean nothing)" : "", "way", "ms", "GB/s");
      for (way& one : ways) {
        std::sort(one.milliseconds.begin(), one.milliseconds.end());
        const double median = one.milliseconds[one.milliseconds.size() / 2];
        std::printf("%-12s %12.3f %10.2f\n", one.name, median, static_cast<double>(bytes) / median / 1e6);
      }
    }
  }
  (void)cuda.cudaStreamDestroy(stream);
}

}  // namespace

int main(int count, char** arguments) {
  const auto wanted = parse(count, arguments);
  if (!wanted) {
    std::fprintf(stderr, "usage: host_reduce [--ranks N] [--mib N] [--rounds N] [--double]\n");
    return 2;
  }
  try {
    return hfcomm::launch(wanted->ranks, [&] { measure(*wanted); });
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "host_reduce: %s\n", problem.what());
    return 1;
  }
}
