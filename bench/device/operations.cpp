// SPDX-License-Identifier: MIT
// operations [--ranks N] [--max-bytes N] [--rounds N] [--double]: compares hfcomm's all-reduces on a GPU, in turns,
// with a bare copy within the device (one rank) or a bare call of NCCL on a communicator of its own (several ranks).
// For each size the medians over the rounds: microseconds an operation takes when many are on the stream, GB/s,
// hfcomm's time by the other's, and the nanoseconds that the CPU spends on a call.
//
// Each rank is a process with a GPU of its own. Where there are fewer GPUs than ranks they share them: each process
// then tells NCCL that it is a machine of its own (NCCL_HOSTID), and NCCL goes through the loopback interface; figures
// made that way compare the two, and say nothing else. --double takes the test double instead of CUDA and NCCL: for
// trying the program where there is no GPU.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include <hfcomm/comm.hpp>
#include <hfcomm/nccl.hpp>

#include "gpu_program.hpp"

namespace {

using clock_type = std::chrono::steady_clock;

using bench::median;
using bench::require;

/// A communicator as a program without hfcomm has it.
class bare_communicator {
 public:
  bare_communicator() {
    if (hfcomm::world_size() == 1) {
      return;
    }
    ncclUniqueId id{};
    if (hfcomm::rank() == 0) {
      require(hfcomm::cuda::nccl().ncclGetUniqueId(&id), "ncclGetUniqueId");
    }
    hfcomm::broadcast(std::span(id.internal));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    require(hfcomm::cuda::nccl().ncclCommInitRankConfig(&comm_, hfcomm::world_size(), id, hfcomm::rank(), &config),
            "ncclCommInitRankConfig");
  }
  bare_communicator(const bare_communicator&) = delete;
  bare_communicator& operator=(const bare_communicator&) = delete;
  ~bare_communicator() {
    if (comm_ != nullptr) {
      (void)hfcomm::cuda::nccl().ncclCommDestroy(comm_);
    }
  }
  [[nodiscard]] ncclComm_t get() const { return comm_; }

 private:
  ncclComm_t comm_ = nullptr;
};

struct figures {
  std::vector<double> microseconds;  // of an operation
  std::vector<double> nanoseconds;   // of the CPU's part of it
};

/// Puts the operation on the stream so many times, and waits.
void time(const std::function<void()>& operation, int times, cudaStream_t stream, figures& found) {
  hfcomm::barrier();
  const auto start = clock_type::now();
  for (int index = 0; index < times; ++index) {
    operation();
  }
  const auto put = clock_type::now();
  require(hfcomm::cuda::runtime().cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  const std::chrono::duration<double, std::micro> all = clock_type::now() - start;
  found.microseconds.push_back(hfcomm::all_reduce(all.count() / times, hfcomm::reduce_op::max));
  found.nanoseconds.push_back(std::chrono::duration<double, std::nano>(put - start).count() / times);
}

void measure(const bench::gpu_settings& wanted, cudaStream_t stream) {
  const auto& cuda = hfcomm::cuda::runtime();
  const bare_communicator bare;
  hfcomm::connect_device();
  const bool alone = hfcomm::world_size() == 1;
  const std::string other = alone ? "copy" : "NCCL";
  if (hfcomm::is_main_process()) {
    std::printf("%d rank%s, %s beside %s%s\n%12s %12s %12s %10s %10s %8s %12s %12s\n", hfcomm::world_size(),
                alone ? "" : "s", std::string(hfcomm::world().device_backend()).c_str(), other.c_str(),
                wanted.on_double ? " (the test double: the figures mean nothing)" : "", "bytes", "hfcomm us",
                (other + " us").c_str(), "GB/s", "GB/s", "ratio", "hfcomm ns", (other + " ns").c_str());
  }
  for (std::size_t bytes = 4; bytes <= wanted.size; bytes *= 8) {
    const hfcomm::device_buffer<float> in(bytes / sizeof(float));
    hfcomm::device_buffer<float> out(bytes / sizeof(float));
    require(cuda.cudaMemsetAsync(const_cast<float*>(in.data()), 0, bytes, stream), "cudaMemsetAsync");
    const auto ours = [&] { hfcomm::all_reduce(in, out, stream); };
    const auto theirs = [&] {
      if (alone) {
        require(cuda.cudaMemcpyAsync(out.data(), in.data(), bytes, cudaMemcpyDeviceToDevice, stream),
                "cudaMemcpyAsync");
      } else {
        require(hfcomm::cuda::nccl().ncclAllReduce(in.data(), out.data(), in.size(), ncclFloat32, ncclSum, bare.get(),
                                                   stream),
                "ncclAllReduce");
      }
    };
    // So many that the stream always has something to do, and not so many that it is full.
    const int times = static_cast<int>(std::clamp<std::size_t>((std::size_t{64} << 20) / bytes, 4, 200));
    figures hfcomm_figures;
    figures bare_figures;
    for (int round = -1; round < wanted.rounds; ++round) {
      if (round == 0) {
        hfcomm_figures = bare_figures = {};  // the first turn warms up
      }
      time(ours, times, stream, hfcomm_figures);
      time(theirs, times, stream, bare_figures);
    }
    if (hfcomm::is_main_process()) {
      const double us = median(hfcomm_figures.microseconds);
      const double bare_us = median(bare_figures.microseconds);
      std::printf("%12zu %12.2f %12.2f %10.2f %10.2f %8.3f %12.0f %12.0f\n", bytes, us, bare_us,
                  static_cast<double>(bytes) / us / 1e3, static_cast<double>(bytes) / bare_us / 1e3, us / bare_us,
                  median(hfcomm_figures.nanoseconds), median(bare_figures.nanoseconds));
      std::fflush(stdout);
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  return bench::run_on_gpus("operations", "--max-bytes", {.ranks = 1, .size = std::size_t{1} << 30}, count, arguments,
                            measure);
}
