// SPDX-License-Identifier: MIT
// Counts the bytes that each rank of an all_reduce reads and writes on each NUMA node, in hfcomm's own code: every
// kernel and every copy that it calls. Nodes are pretended, so any machine will do. The output is a line for each rank:
//
//   NODES LOCAL shared|ordinary shares|chain RANK read BYTES ... written BYTES ...     (of each node)
//
// usage: numa_bytes BYTES NODES LOCAL [NODES LOCAL ...]: so many nodes with so many ranks each

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// hfcomm's functions get other names here, and functions that count get theirs.
#define run_kernel uncounted_run_kernel
#include <hfcomm/engine/reduction/kernel.hpp>
#undef run_kernel
#define copy_bytes uncounted_copy_bytes
#include <hfcomm/engine/reduction/detail/copy_bytes-inl.hpp>
#undef copy_bytes

namespace bench {

/// The memory of a rank, and the node where it is.
struct region {
  const std::byte* begin;
  std::size_t bytes;
  int node;
};

/// The accesses of one rank, a thread of this process, by node.
struct counts {
  std::vector<std::uint64_t> read;
  std::vector<std::uint64_t> written;
};

inline std::vector<region> all_memory;              // not changed while anything is counted
inline thread_local counts* counted_for = nullptr;  // null: nothing is counted
inline constexpr std::size_t element_bytes = 4;

inline void count(std::vector<std::uint64_t> counts::* kind, const std::byte* address, std::size_t bytes) {
  for (const region& one : all_memory) {
    if (address >= one.begin && address + bytes <= one.begin + one.bytes) {
      (counted_for->*kind)[static_cast<std::size_t>(one.node)] += bytes;
      return;
    }
  }
  std::fprintf(stderr, "numa_bytes: an access to memory that belongs to no rank\n");
  std::abort();
}

}  // namespace bench

namespace hfcomm::detail {

inline void run_kernel(reduction_kernel kernel, reduce_kind op, std::span<const std::byte* const> inputs,
                       std::span<std::byte* const> outs, std::size_t number, std::span<const double> factors,
                       std::size_t divisor) noexcept {
  if (bench::counted_for != nullptr) {
    for (const std::byte* input : inputs) {
      bench::count(&bench::counts::read, input, number * bench::element_bytes);
    }
    for (const std::byte* output : outs) {
      bench::count(&bench::counts::written, output, number * bench::element_bytes);
    }
  }
  // A kernel copies what it has just written from one output to the others.
  bench::counts* const counted = std::exchange(bench::counted_for, nullptr);
  uncounted_run_kernel(kernel, op, inputs, outs, number, factors, divisor);
  bench::counted_for = counted;
}
inline void run_kernel(reduction_kernel kernel, reduce_kind op, std::span<const std::byte* const> inputs,
                       std::span<std::byte* const> outs, std::size_t number, std::span<const double> factors) noexcept {
  run_kernel(kernel, op, inputs, outs, number, factors, inputs.size());
}
inline void run_kernel(reduction_kernel kernel, reduce_kind op, std::span<const std::byte* const> inputs,
                       std::byte* out, std::size_t number, std::span<const double> factors) noexcept {
  run_kernel(kernel, op, inputs, {&out, 1}, number, factors);
}

inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  if (bench::counted_for != nullptr && bytes != 0) {
    bench::count(&bench::counts::read, from, bytes);
    bench::count(&bench::counts::written, to, bytes);
  }
  uncounted_copy_bytes(to, from, bytes);
}

}  // namespace hfcomm::detail

#include <hfcomm/comm.hpp>
#include <hfcomm/testing.hpp>

#include "../tests/numa.hpp"

namespace {

/// Registers what a rank has in the group's memory.
void add_memory(const hfcomm::process_group& world, int node) {
  const hfcomm::engines::group_memory& memory = numa::engine_of(world).memory_of_group();
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  bench::all_memory.push_back(
      {memory.slot(world.rank(), 0), memory.sizes().slot_stride() * hfcomm::engines::layout::depth, node});
  bench::all_memory.push_back({memory.at(memory.heap_offset(world.rank())), memory.heap_bytes(), node});
}

void print(const std::vector<std::uint64_t>& bytes) {
  for (const std::uint64_t count : bytes) {
    std::printf(" %llu", static_cast<unsigned long long>(count));
  }
}

/// Counts an all_reduce of integers, which any nodes may chain, in place of `length` bytes among `nodes` times `local`
/// ranks.
void measure(int nodes, int local, bool is_shared, bool chains, std::size_t length) {
  std::vector<int> node_of;
  for (int rank = 0; rank < nodes * local; ++rank) {
    node_of.push_back(rank / local);
  }
  const numa::pretended_nodes pretended(node_of);
  std::vector<bench::counts> all(node_of.size());
  bench::all_memory.clear();
  std::vector<std::vector<std::int32_t>> ordinary(
      node_of.size(), std::vector<std::int32_t>(is_shared ? 0 : length / sizeof(std::int32_t)));
  for (std::size_t rank = 0; rank < ordinary.size(); ++rank) {
    const auto bytes = std::as_bytes(std::span(ordinary[rank]));
    bench::all_memory.push_back({bytes.data(), bytes.size(), node_of[rank]});
  }
  hfcomm::testing::run_ranks(nodes * local, [&](const hfcomm::process_group& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    auto shared = world.allocate<std::int32_t>(is_shared ? length / sizeof(std::int32_t) : 1);
    const std::span<std::int32_t> values = is_shared ? std::span<std::int32_t>(shared) : std::span(ordinary[rank]);
    add_memory(world, node_of[rank]);
    numa::chain_from(chains ? 1 : SIZE_MAX, world);
    hfcomm::barrier(world);
    all[rank].read.resize(static_cast<std::size_t>(nodes));
    all[rank].written.resize(static_cast<std::size_t>(nodes));
    bench::counted_for = &all[rank];
    hfcomm::all_reduce(values, hfcomm::reduce_op::sum, world);
    bench::counted_for = nullptr;
    hfcomm::barrier(world);
    if ((numa::node_chains(world) != 0) != chains) {
      throw std::logic_error("numa_bytes: the all_reduce was not done as it should be");
    }
  });
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    std::printf("%d %d %s %s %zu read", nodes, local, is_shared ? "shared" : "ordinary", chains ? "chain" : "shares",
                rank);
    print(all[rank].read);
    std::printf(" written");
    print(all[rank].written);
    std::printf("\n");
  }
}

}  // namespace

int main(int count, char** arguments) try {
  if (count < 4 || count % 2 != 0) {
    std::fprintf(stderr, "usage: numa_bytes BYTES NODES LOCAL [NODES LOCAL ...]\n");
    return 2;
  }
  const std::size_t length = std::strtoull(arguments[1], nullptr, 10);
  for (int index = 2; index < count; index += 2) {
    for (const bool is_shared : {true, false}) {
      for (const bool chains : {false, true}) {
        measure(std::atoi(arguments[index]), std::atoi(arguments[index + 1]), is_shared, chains, length);
      }
    }
  }
  return 0;
} catch (const std::exception& problem) {
  std::fprintf(stderr, "%s\n", problem.what());
  return 1;
}
