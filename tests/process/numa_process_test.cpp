// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <hfcomm/machine/numa_nodes.hpp>

#include "../numa.hpp"
#include "../tree.hpp"
#include "processes.hpp"

namespace numa_processes {
namespace {

using namespace hfcomm;

void require(bool right, const char* what) {
  if (!right) {
    throw std::runtime_error(std::string("wrong: ") + what);
  }
}

/// Runs `body` in processes that are the ranks of a job, on pretended nodes.
void run(const std::string& name, const std::vector<int>& nodes, const std::function<void()>& body) {
  const int ranks = static_cast<int>(nodes.size());
  const std::string job = processes::unique_name(name);
  processes::child_processes children(ranks, [&](int rank) {
    const numa::pretended_nodes pretended(nodes);
    session own = init(processes::job_options(job, rank, ranks));
    barrier();
    body();
    barrier();
  });
  for (const auto& outcome : children.wait(std::chrono::seconds(60))) {
    CHECK(outcome.exited_with(0));
    CHECK(outcome.output.empty());
  }
}

/// Returns a rank's values, whose sums depend on the order.
std::vector<float> values_of(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = 1.0F / static_cast<float>(i * 7 % 1'013 + 3 * static_cast<std::size_t>(rank) + 1);
  }
  return values;
}

/// Returns the sum over all ranks.
std::vector<float> sum_of_all(std::size_t count) {
  std::vector<std::vector<float>> values;
  for (int rank = 0; rank < world_size(); ++rank) {
    values.push_back(values_of(rank, count));
  }
  return combine_in_tree(std::span<const std::vector<float>>(values),
                         [](std::vector<float> a, const std::vector<float>& b) {
                           std::transform(a.begin(), a.end(), b.begin(), a.begin(), std::plus<>());
                           return a;
                         });
}

bool are_equal(std::span<const float> one, std::span<const float> other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end());
}

/// Checks reductions of both kinds of buffers, of which `expected` each go along the chain of nodes.
void check_reductions(std::uint64_t expected) {
  numa::chain_from(1, world());
  const std::size_t count = 300'001;
  const auto mine = values_of(rank(), count);
  const auto sum = sum_of_all(count);
  for (int round = 0; round < 2; ++round) {
    std::vector<float> ordinary = mine;
    all_reduce(ordinary);
    require(are_equal(ordinary, sum), "ordinary");
    auto shared = world().allocate<float>(count);
    auto out = world().allocate<float>(count);
    std::copy(mine.begin(), mine.end(), shared.begin());
    all_reduce(shared, out);
    require(are_equal(out, sum) && are_equal(shared, mine), "shared");
    reduce(shared, out, world_size() - 1, reduce_op::average);
    require(are_equal(shared, mine), "unchanged input");
    all_reduce(shared);
    require(are_equal(shared, sum), "shared, in place");
  }
  require(numa::node_chains(world()) == 8 * expected, "number of chains");
}

/// Returns the nodes that are preferred for the pages inside memory, -2 where they differ.
int preferred_node(std::span<const std::byte> memory) {
  const std::size_t page = engines::layout::page_bytes();
  const auto begin = (reinterpret_cast<std::uintptr_t>(memory.data()) + page - 1) / page * page;
  const auto end = (reinterpret_cast<std::uintptr_t>(memory.data()) + memory.size()) / page * page;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): pages of this process
  const auto node_at = [](std::uintptr_t address) { return numa::preferred_node_of(reinterpret_cast<void*>(address)); };
  const int first = node_at(begin);
  for (std::uintptr_t address = begin; address < end; address += page) {
    if (node_at(address) != first) {
      return -2;
    }
  }
  return first;
}

/// Checks that the memory of all ranks prefers `node`, where the system tells, and that this rank's lies there.
void check_memory(const process_group& group, int node) {
  const engines::group_memory& memory = numa::engine_of(group).memory_of_group();
  const engines::layout::dimensions& sizes = memory.sizes();
  for (int other = 0; other < group.size(); ++other) {
    const auto* const block = reinterpret_cast<const std::byte*>(&memory.block(other));
    require(preferred_node({block, sizeof(engines::layout::rank_block)}) == node, "block");
    require(preferred_node({memory.slot(other, 0), sizes.slot_stride() * engines::layout::depth}) == node, "slots");
    require(preferred_node({memory.message_slot(other, 0),
                            sizes.message_slot_bytes * engines::layout::message_slot_count}) == node,
            "message slots");
  }
  const int here = rendezvous::numa_nodes::of_this_machine().node_of(rendezvous::allowed_core_numbers());
  if (here != rendezvous::numa_nodes::unknown) {
    memory.slot(group.rank(), 1)[4096] = {};
    require(numa::node_of_page(memory.slot(group.rank(), 1) + 4096) == here, "where a slot lies");
    auto heap = group.allocate<std::byte>(1 << 20);
    for (std::size_t page = 0; page < heap.size(); page += 4096) {
      require(numa::node_of_page(heap.data() + page) == here, "where a heap lies");
    }
  }
}

}  // namespace

TEST_CASE("numa: processes on pretended nodes get the sums of one node") {
  run("numa-0011", {0, 0, 1, 1}, [] { check_reductions(1); });
  run("numa-001", {0, 0, 1}, [] { check_reductions(1); });
  run("numa-00112", {0, 0, 1, 1, 2}, [] { check_reductions(1); });
  run("numa-0111", {0, 1, 1, 1}, [] { check_reductions(0); });
  run("numa-0101", {0, 1, 0, 1}, [] { check_reductions(0); });
  run("numa-0000", {0, 0, 0, 0}, [] { check_reductions(0); });
}

TEST_CASE("numa: each rank's memory is kept on its node where there are several, and left alone where there is one") {
  if (!numa::may_place_memory() || rendezvous::numa_nodes::of_this_machine().count() != 1) {
    std::puts("[hfcomm] skipped: numa: each rank's memory is kept on its node: only on one node that may be preferred");
    return;
  }
  const int here = rendezvous::numa_nodes::of_this_machine().node_of(rendezvous::allowed_core_numbers());
  run("numa-placed", {0, 0, 1}, [&] {
    check_memory(world(), here);
    const process_group pair = world().split(rank() == 2 ? 1 : 0, 0);
    if (pair.size() == 2) {
      check_memory(pair, here);
    }
  });
  run("numa-not-placed", {0, 0, 0}, [] { check_memory(world(), -1); });
}

TEST_CASE("numa: a rank that dies between reductions along the chain is an error of all others") {
  const std::string job = processes::unique_name("numa-death");
  processes::child_processes children(4, [&](int rank) {
    const numa::pretended_nodes pretended("0,0,1,1");
    session own = init(processes::job_options(job, rank, 4));
    numa::chain_from(1, world());
    auto shared = world().allocate<float>(300'000);
    std::vector<float> ordinary(300'000);
    for (int turn = 0; turn < 100; ++turn) {
      if (rank == 2 && turn == 10) {
        ::_exit(7);
      }
      try {
        all_reduce(shared);
        all_reduce(ordinary);
      } catch (const peer_error& problem) {
        processes::report("lost " + std::to_string(problem.peer()) + " in turn " + std::to_string(turn));
        return;
      }
    }
  });
  const auto outcomes = children.wait(std::chrono::seconds(60));
  for (const std::size_t rank : {0U, 1U, 3U}) {
    CHECK(outcomes[rank].output == "lost 2 in turn 10\n");
  }
  CHECK(outcomes[2].exited_with(7));
}

TEST_CASE("numa: a wrong HFCOMM_NUMA_NODES ends a job with an error that names it") {
  for (const std::string& list : {std::string("0"), std::string("0;1")}) {
    CAPTURE(list);
    const std::string job = processes::unique_name("numa-wrong");
    processes::child_processes children(2, [&](int rank) {
      const numa::pretended_nodes pretended(list);
      session own = init(processes::job_options(job, rank, 2));
      barrier();
    });
    const auto outcomes = children.wait(std::chrono::seconds(60));
    std::string text;
    for (const auto& outcome : outcomes) {
      CHECK(outcome.exited_with(1));
      CHECK(outcome.output.find("HUNG") == std::string::npos);
      text += outcome.output;
    }
    CHECK(text.find("HFCOMM_NUMA_NODES has") != std::string::npos);
  }
}

}  // namespace numa_processes
