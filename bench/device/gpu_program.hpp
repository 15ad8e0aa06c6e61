// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hfcomm/comm.hpp>
#include <hfcomm/nccl.hpp>

#include <fake/fake_cuda.hpp>

/// The parts of a program that measures on GPUs, in one process for each rank.
namespace bench {

struct gpu_settings {
  int ranks;
  std::size_t size;  ///< The value of the option that only this program has.
  int rounds = 9;
  bool on_double = false;  ///< With the test double instead of CUDA and NCCL, to try the program where there is no GPU.
};

inline void require(cudaError_t result, const char* what) {
  if (result != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + hfcomm::cuda::runtime().cudaGetErrorString(result));
  }
}
inline void require(ncclResult_t result, const char* what) {
  if (result != ncclSuccess) {
    throw std::runtime_error(std::string(what) + ": " + hfcomm::cuda::nccl().ncclGetErrorString(result));
  }
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Returns the settings; nullopt where an argument is unknown, or its value not above 0.
inline std::optional<gpu_settings> parse(int count, char** arguments, std::string_view size_option,
                                         gpu_settings wanted) {
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
    } else if (option == size_option) {
      wanted.size = static_cast<std::size_t>(value);
    } else if (option == "--rounds") {
      wanted.rounds = static_cast<int>(value);
    } else {
      return std::nullopt;
    }
  }
  return wanted;
}

/// Makes the GPU current that this rank is to have; before NCCL has looked at its variables.
inline void choose_gpu() {
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

/// Calls `measure(settings, stream)` in each rank, with a GPU and a stream of its own. Returns the program's exit
/// status.
template <class Measure>
int run_on_gpus(const char* program, const char* size_option, const gpu_settings& defaults, int count, char** arguments,
                Measure measure) {
  const auto wanted = parse(count, arguments, size_option, defaults);
  if (!wanted) {
    std::fprintf(stderr, "usage: %s [--ranks N] [%s N] [--rounds N] [--double]\n", program, size_option);
    return 2;
  }
  try {
    return hfcomm::launch(wanted->ranks, [&] {
      std::optional<fake_cuda::install> pretended;
      if (wanted->on_double) {
        pretended.emplace();
      }
      choose_gpu();
      const auto& cuda = hfcomm::cuda::runtime();
      cudaStream_t stream = nullptr;
      require(cuda.cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), "cudaStreamCreateWithPriority");
      measure(*wanted, stream);
      (void)cuda.cudaStreamDestroy(stream);
    });
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "%s: %s\n", program, problem.what());
    return 1;
  }
}

}  // namespace bench
