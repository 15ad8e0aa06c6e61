// SPDX-License-Identifier: MIT
// enqueue [ROUNDS]: the CPU cost of a device operation beyond NCCL's own call. Needs no GPU: two ranks as threads use
// the test double, whose measured functions only return success. So the figures are hfcomm's part, and the call through
// the table. Nanoseconds of CPU time are medians of rounds in which hfcomm and the
// bare call take turns; instructions are counted one by one, by a parent that single-steps the process; allocations by
// operator new. Fails where an operation allocates anything.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <ctime>

#include <hfcomm/comm.hpp>
#include <hfcomm/nccl.hpp>
#include <hfcomm/testing.hpp>

#include <fake/fake_cuda.hpp>

namespace {

thread_local std::size_t allocations = 0;
std::size_t allocated_in_operations = 0;

void* allocate(std::size_t bytes) {
  ++allocations;
  void* memory = std::malloc(bytes != 0 ? bytes : 1);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }

namespace {

// Functions that only return success.
ncclResult_t nothing_all_reduce(const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                                cudaStream_t) {
  return ncclSuccess;
}
ncclResult_t nothing_reduce_scatter(const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                                    cudaStream_t) {
  return ncclSuccess;
}
ncclResult_t nothing_broadcast(const void*, void*, std::size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  return ncclSuccess;
}
ncclResult_t nothing_all_gather(const void*, void*, std::size_t, ncclDataType_t, ncclComm_t, cudaStream_t) {
  return ncclSuccess;
}

/// One thing to measure, and what it is compared with.
struct comparison {
  std::string name;
  std::function<void(std::size_t)> ours;  // so many times
  std::function<void(std::size_t)> bare;
};

/// Returns this thread's CPU time in nanoseconds; other work on the machine does not count.
double cpu_time() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

double nanoseconds(const std::function<void(std::size_t)>& body, std::size_t times) {
  const double start = cpu_time();
  body(times);
  return (cpu_time() - start) / static_cast<double>(times);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// The number of instructions that the parent has counted.
long& counted() {
  static auto* const word =
      static_cast<long*>(::mmap(nullptr, sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  return *word;
}

/// Serves a child: steps its thread, between SIGUSR1 and SIGUSR2, instruction by instruction. Returns its exit status.
int count_for(pid_t child) {
  int status = 0;
  bool stepping = false;
  long steps = 0;
  while (true) {
    const pid_t thread = ::waitpid(-1, &status, __WALL);
    if (thread < 0 || (thread == child && !WIFSTOPPED(status))) {
      return thread >= 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    }
    if (!WIFSTOPPED(status)) {
      continue;
    }
    int signal = WSTOPSIG(status);
    if (signal == SIGUSR1) {
      stepping = true;
      steps = 0;
    } else if (signal == SIGUSR2) {
      stepping = false;
      counted() = steps;
    } else if (signal == SIGTRAP) {
      ++steps;
    }
    signal = signal == SIGUSR1 || signal == SIGUSR2 || signal == SIGTRAP ? 0 : signal;
    (void)::ptrace(stepping ? PTRACE_SINGLESTEP : PTRACE_CONT, thread, nullptr, signal);
  }
}

/// Instructions of one call; negative where the system forbids to count them.
long instructions(const std::function<void(std::size_t)>& body) {
  thread_local const bool traced = ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0;
  if (!traced) {
    return -1;
  }
  body(100);
  long steps[2]{};
  for (const std::size_t times : {std::size_t{1}, std::size_t{2}}) {
    ::raise(SIGUSR1);
    body(times);
    ::raise(SIGUSR2);
    steps[times - 1] = counted();
  }
  return steps[1] - steps[0];
}

void measure(const comparison& one, std::size_t rounds) {
  constexpr std::size_t times = 20'000;
  std::vector<double> ours;
  std::vector<double> bare;
  ours.reserve(rounds);
  bare.reserve(rounds);
  one.ours(times);
  one.bare(times);
  const std::size_t before = allocations;
  for (std::size_t round = 0; round < rounds; ++round) {
    ours.push_back(nanoseconds(one.ours, times));
    bare.push_back(nanoseconds(one.bare, times));
  }
  const std::size_t made = allocations - before;
  allocated_in_operations += made;
  const double per_call = static_cast<double>(made) / static_cast<double>(times * rounds);
  std::printf("%-34s %8.1f ns %8.1f ns %8.1f ns %8ld %8ld  %10.4f\n", one.name.c_str(), median(ours), median(bare),
              median(ours) - median(bare), instructions(one.ours), instructions(one.bare), per_call);
}

}  // namespace

int main(int count, char** arguments) {
  const std::size_t rounds = count > 1 ? std::strtoul(arguments[1], nullptr, 10) : 31;
  if (rounds == 0) {
    std::fprintf(stderr, "usage: enqueue [ROUNDS]\n");
    return 2;
  }
  counted() = 0;
  std::fflush(nullptr);
  if (const pid_t child = ::fork(); child != 0) {
    return count_for(child);
  }
  const fake_cuda::install fake;
  auto table = fake_cuda::nccl_table();
  table.ncclAllReduce = nothing_all_reduce;
  table.ncclReduceScatter = nothing_reduce_scatter;
  table.ncclBroadcast = nothing_broadcast;
  table.ncclAllGather = nothing_all_gather;
  hfcomm::cuda::use_nccl(&table);
  std::printf("%-34s %11s %11s %11s %8s %8s  %10s\n", "", "hfcomm", "bare call", "difference", "instr.", "bare",
              "new/call");
  hfcomm::testing::run_ranks(2, [&](const hfcomm::process_group& world) {
    (void)hfcomm::cuda::runtime().cudaSetDevice(world.rank());
    cudaStream_t stream = nullptr;
    (void)hfcomm::cuda::runtime().cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0);
    {
      hfcomm::device_buffer<float> data(1024);
      hfcomm::device_buffer<float> all(2048);
      hfcomm::connect_device(world);
      if (world.rank() == 0) {
        auto* const volatile comm = fake_cuda::communicators(0).front();
        const auto& entries = table;
        const auto repeat = [](auto call) {
          return [call](std::size_t times) {
            for (std::size_t index = 0; index < times; ++index) {
              call();
            }
          };
        };
        measure({"all_reduce", repeat([&] { hfcomm::all_reduce(data, stream, hfcomm::reduce_op::sum, world); }),
                 repeat([&] {
                   (void)entries.ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclSum, comm,
                                               stream);
                 })},
                rounds);
        measure({"broadcast", repeat([&] { hfcomm::broadcast(data, stream, 0, world); }), repeat([&] {
                   (void)entries.ncclBroadcast(data.data(), data.data(), data.size(), ncclFloat32, 0, comm, stream);
                 })},
                rounds);
        measure({"all_gather", repeat([&] { hfcomm::all_gather(data, all, stream, world); }), repeat([&] {
                   (void)entries.ncclAllGather(data.data(), all.data(), data.size(), ncclFloat32, comm, stream);
                 })},
                rounds);
        measure({"reduce_scatter",
                 repeat([&] { hfcomm::reduce_scatter(all, data, stream, hfcomm::reduce_op::sum, world); }), repeat([&] {
                   (void)entries.ncclReduceScatter(all.data(), data.data(), data.size(), ncclFloat32, ncclSum, comm,
                                                   stream);
                 })},
                rounds);
      }
      hfcomm::barrier(world);
    }
    (void)hfcomm::cuda::runtime().cudaStreamDestroy(stream);
  });
  if (allocated_in_operations != 0) {
    std::fprintf(stderr, "operations allocate memory\n");
  }
  return allocated_in_operations == 0 ? 0 : 1;
}
