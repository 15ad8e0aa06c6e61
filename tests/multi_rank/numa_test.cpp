// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/engine/shared_memory/ways.hpp>

#include "../numa.hpp"
#include "machines.hpp"

namespace numa_nodes {
namespace {

using namespace hfcomm;
using namespace multi_rank;
using numa::chain_from;
using numa::node_chains;
using numa::pretended_nodes;

struct node_layout {
  std::vector<int> nodes;  // by rank
  bool spares_bytes;       // a node has several ranks, so the chain sends less between nodes
  bool has_order = true;   // the chain of up to three nodes combines in the order of the ranks' tree

  [[nodiscard]] int ranks() const { return static_cast<int>(nodes.size()); }
};

const std::vector<node_layout> all_layouts{
    {{0, 1}, false},
    {{0, 0, 1}, true},
    {{1, 0, 0}, true, false},
    {{0, 1, 2}, false},
    {{0, 0, 1, 1}, true},
    {{0, 0, 0, 1}, true, false},
    {{0, 1, 1, 2}, true, false},
    {{0, 1, 2, 3}, false},
    {{0, 1, 0, 1}, true, false},
    {{0, 0, 0, 0, 1, 1, 1, 1}, true},
    {{5, 5, 5, 3, 3, 3, 4, 4}, true, false},
    {{0, 1, 1, 1, 1, 1, 2, 3}, true, false},
    {{0, 0, 1, 1, 2, 2}, true},
    {{0, 0, 0, 0, 1, 1}, true},
    {{0, 0, 1, 1, 2, 2, 3, 3}, true, false},
    {{0, 1, 2, 3, 0, 1, 2, 3}, true, false},
};
const std::vector<node_layout> layouts =
    under_thread_sanitizer ? std::vector<node_layout>{all_layouts[4], all_layouts[6], all_layouts[8]} : all_layouts;

/// Bytes of several chunks of the chain, and a rest.
constexpr std::size_t many_bytes = 400'000;

/// Returns values whose sums depend on the order, with infinities and NaNs of several payloads among those of floats.
template <class T>
std::vector<T> values_with_nans(int rank, std::size_t count) {
  std::vector<T> values = values_of<T>(rank, count);
  if constexpr (std::same_as<T, float>) {
    for (std::size_t i = 0; i < count; i += 97) {
      const std::uint32_t nan = 0xffc00001U + static_cast<std::uint32_t>(rank);
      values[i] = i % 4 == as_index(rank) % 4 ? std::bit_cast<float>(nan) : i % 3 == 0 ? HUGE_VALF : -HUGE_VALF;
    }
  }
  return values;
}

/// Memory of `count` elements that begin at an odd address where the type allows it.
template <class T>
struct any_buffer {
  any_buffer(const process_group& world, std::size_t count, bool is_shared) {
    if (is_shared) {
      shared.emplace(world.allocate<T>(count + 1));
      data = std::span<T>(*shared).subspan(1);
    } else {
      ordinary.resize(count + 1);
      data = std::span(ordinary).subspan(1);
    }
  }
  std::vector<T> ordinary;
  std::optional<shared_buffer<T>> shared;
  std::span<T> data;
};

/// Runs `reduce_all(in, out, world)`, which gives one result to all ranks, on each layout, in memory of each kind and
/// in place, and compares the results with those of a machine with one node.
template <class T, class ReduceAll>
void check_all_layouts(bool may_chain, bool any_order, ReduceAll reduce_all) {
  const std::size_t count = many_bytes / sizeof(T) + 13;
  std::map<int, std::vector<T>> wanted_of;  // by the number of ranks
  for (const node_layout& layout : layouts) {
    const std::string text = pretended_nodes::text_of(layout.nodes);
    CAPTURE(text);
    std::vector<T>& wanted = wanted_of[layout.ranks()];
    if (wanted.empty()) {
      run_ranks(layout.ranks(), [&](const process_group& world) {
        std::vector<T> values = values_with_nans<T>(world.rank(), count);
        reduce_all(std::span<const T>(values), std::span(values), world);
        if (world.rank() == 0) {
          wanted = values;
        }
        CHECK(node_chains(world) == 0);
      });
    }
    const pretended_nodes nodes(layout.nodes);
    run_noted(layout.ranks(), text, [&](const process_group& world) {
      const bool chains = may_chain && layout.spares_bytes && (any_order || layout.has_order);
      const std::vector<T> values = values_with_nans<T>(world.rank(), count);
      barrier(world);
      chain_from(1, world);
      std::uint64_t done = 0;
      // Memory of rank 0 and of the others: ordinary, shared, and mixed.
      for (const auto& [first, others] : {std::pair{false, false}, std::pair{true, true}, std::pair{true, false}}) {
        const bool is_shared = world.rank() == 0 ? first : others;
        any_buffer<T> in(world, count, is_shared);
        any_buffer<T> out(world, count, is_shared);
        std::copy(values.begin(), values.end(), in.data.begin());
        reduce_all(std::span<const T>(in.data), out.data, world);
        CHECK(same_bits(out.data, wanted));
        CHECK(same_bits(in.data, values));
        reduce_all(std::span<const T>(in.data), in.data, world);
        CHECK(same_bits(in.data, wanted));
        done += 2;
      }
      CHECK(node_chains(world) == (chains ? done : 0));
    });
  }
}

template <class T>
void check_all_reduce(reduce_op op, bool may_chain = true) {
  CAPTURE(to_string(op));
  check_all_layouts<T>(may_chain, std::integral<T>,
                       [&](std::span<const T> in, std::span<T> out, const process_group& world) {
                         if (in.data() == out.data()) {
                           all_reduce(out, op, world);
                         } else {
                           all_reduce(in, out, op, world);
                         }
                       });
}

}  // namespace

TEST_CASE("numa: an all_reduce of floats has the bits of a machine with one node") {
  check_all_reduce<float>(reduce_op::sum);
  check_all_reduce<float>(reduce_op::min);
  check_all_reduce<float>(reduce_op::average);
  check_all_reduce<double>(reduce_op::product);
}

TEST_CASE("numa: an all_reduce of complex numbers has the bits of a machine with one node") {
  check_all_reduce<std::complex<float>>(reduce_op::product);
  check_all_reduce<std::complex<double>>(reduce_op::average);
}

TEST_CASE("numa: an all_reduce of integers goes along the chain whatever the order of the ranks") {
  check_all_reduce<std::int32_t>(reduce_op::sum);
  check_all_reduce<std::uint8_t>(reduce_op::product);
  check_all_reduce<std::int64_t>(reduce_op::max);
  check_all_reduce<std::uint64_t>(reduce_op::bit_xor);
}

TEST_CASE("numa: elements that are rounded once at the end do not go along the chain") {
  check_all_reduce<bfloat16>(reduce_op::sum, false);
  check_all_reduce<float16>(reduce_op::average, false);
}

TEST_CASE("numa: each rank has its own factor of a premultiplied sum") {
  check_all_layouts<float>(true, false,
                           [](std::span<const float> in, std::span<float> out, const process_group& world) {
                             const auto op = reduce_op::premultiplied_sum(0.1 + world.rank() / 3.0);
                             if (in.data() == out.data()) {
                               all_reduce(out, op, world);
                             } else {
                               all_reduce(in, out, op, world);
                             }
                           });
}

TEST_CASE("numa: a reduce gives any root the bits of one node, and leaves the other outputs alone") {
  const std::size_t count = many_bytes / sizeof(float) + 13;
  std::map<int, std::vector<float>> wanted_of;  // by the number of ranks
  for (const node_layout& layout : layouts) {
    const std::string text = pretended_nodes::text_of(layout.nodes);
    std::vector<float>& wanted = wanted_of[layout.ranks()];
    if (wanted.empty()) {
      run_ranks(layout.ranks(), [&](const process_group& world) {
        auto values = values_of<float>(world.rank(), count);
        all_reduce(values, reduce_op::sum, world);
        if (world.rank() == 0) {
          wanted = values;
        }
      });
    }
    const pretended_nodes nodes(layout.nodes);
    run_noted(layout.ranks(), text, [&](const process_group& world) {
      barrier(world);
      chain_from(1, world);
      std::uint64_t done = 0;
      const auto values = values_of<float>(world.rank(), count);
      for (const bool is_shared : {false, true}) {
        for (int root = 0; root < world.size(); ++root) {
          any_buffer<float> in(world, count, is_shared);
          any_buffer<float> out(world, count, is_shared);
          std::copy(values.begin(), values.end(), in.data.begin());
          std::fill(out.data.begin(), out.data.end(), 5.0F);
          reduce(std::span<const float>(in.data), out.data, root, reduce_op::sum, world);
          CHECK(same_bits(in.data, values));
          if (world.rank() == root) {
            CHECK(same_bits(out.data, wanted));
          } else {
            CHECK(std::all_of(out.data.begin(), out.data.end(), [](float value) { return value == 5; }));
          }
          ++done;
        }
      }
      CHECK(node_chains(world) == (layout.spares_bytes && layout.has_order ? done : 0));
    });
  }
}

TEST_CASE("numa: reductions of changing lengths in a row keep apart from each other and from other operations") {
  const std::vector<int> nodes_of_ranks{0, 0, 1, 1, 1};
  std::vector<std::vector<std::int32_t>> wanted;
  for (const bool pretends : {false, true}) {
    const pretended_nodes nodes(pretends ? nodes_of_ranks : std::vector<int>(5, 0));
    run_ranks(5, [&](const process_group& world) {
      chain_from(1, world);
      for (std::size_t turn = 0; turn < 24; ++turn) {
        const std::size_t count = 65'536 + turn * 7'919;
        any_buffer<std::int32_t> values(world, count, turn % 3 == 1);
        const auto from = values_of<std::int32_t>(world.rank() + static_cast<int>(turn), count);
        std::copy(from.begin(), from.end(), values.data.begin());
        all_reduce(values.data, reduce_op::sum, world);
        if (turn % 2 == 0) {
          const std::vector<int> numbers = all_gather(static_cast<int>(turn), world);
          CHECK(std::all_of(numbers.begin(), numbers.end(), [&](int n) { return n == static_cast<int>(turn); }));
        }
        if (!pretends && world.rank() == 0) {
          wanted.emplace_back(values.data.begin(), values.data.end());
        } else if (pretends) {
          CHECK(same_bits(values.data, wanted[turn]));
        }
      }
      CHECK(node_chains(world) == (pretends ? 23 : 0));  // the nodes are known after the first step
    });
  }
}

TEST_CASE("numa: a chain begins at a number of ranks and bytes of a node") {
  const pretended_nodes nodes("0,0,1,1");
  run_ranks(4, [](const process_group& world) {
    barrier(world);
    constexpr std::size_t least = 50'000;
    chain_from(least, world);
    const auto count_of = [&](std::size_t bytes) {
      const std::uint64_t before = node_chains(world);
      std::vector<std::uint8_t> values(bytes, static_cast<std::uint8_t>(world.rank() + 1));
      all_reduce(values, reduce_op::sum, world);
      CHECK(std::all_of(values.begin(), values.end(), [](std::uint8_t value) { return value == 10; }));
      return node_chains(world) - before;
    };
    CHECK(count_of(least - 1) == 0);
    CHECK(count_of(least) == 1);
    numa::engine_of(world).node_chain().set_limits({.ranks = 2, .bytes = 1, .is_tuned = false});
    CHECK(count_of(least) == 1);
    numa::engine_of(world).node_chain().set_limits({.ranks = 3, .bytes = 1, .is_tuned = false});
    CHECK(count_of(least) == 0);
    numa::engine_of(world).node_chain().set_limits({});
    CHECK(count_of(least) == 0);
  });
}

TEST_CASE("numa: a choice of the chain does not hold for types that the chain cannot reduce") {
  const pretended_nodes nodes("0,0,1,1");
  engines::tuning_table& table = engines::tuning_table::of_process();
  table.reset(engines::tuning_mode::brief);
  for (const bool shares_cores : {false, true}) {
    for (const auto kind : {engines::tuned_operation::all_reduce, engines::tuned_operation::narrow_all_reduce}) {
      table.set({4, shares_cores, kind, 17}, {engines::nodes_way, 1});
    }
  }
  run_ranks(4, [](const process_group& world) {
    barrier(world);
    numa::engine_of(world).node_chain().set_limits({.ranks = 1, .bytes = 1000});
    std::vector<float> floats(17'000, 1.5F);
    all_reduce(floats, reduce_op::average, world);
    all_reduce(floats, reduce_op::average, world);
    CHECK(node_chains(world) == 1);  // the first call proposes it
    for (const std::size_t count : each_of(34'000, 70'000)) {
      for (int call = 0; call < 25; ++call) {
        std::vector<bfloat16> values(count, bfloat16(0.1F * static_cast<float>(world.rank() + 1)));
        auto shared = world.allocate<bfloat16>(count);
        std::copy(values.begin(), values.end(), shared.begin());
        all_reduce(values, reduce_op::sum, world);
        all_reduce(shared, reduce_op::sum, world);
        CHECK(std::memcmp(values.data(), shared.data(), count * sizeof(bfloat16)) == 0);
      }
    }
    CHECK(node_chains(world) == 1);
  });
  table.reset(engines::tuning_mode::brief);
}

TEST_CASE("numa: the lanes of a single rank that does as much as eight fit into its slots") {
  if (under_thread_sanitizer) {
    return;  // the other cases take the same ways
  }
  for (const auto* list : {"0,1,1,1,1,1,1,1,1", "0,0,0,0,0,0,0,0,1"}) {
    const pretended_nodes nodes{std::string(list)};
    run_ranks(9, [](const process_group& world) {
      barrier(world);
      chain_from(1, world);
      constexpr std::size_t count = std::size_t{2} << 20;  // lanes are as long as they may be
      for (const bool is_shared : {false, true}) {
        any_buffer<std::uint32_t> values(world, count, is_shared);
        for (std::size_t i = 0; i < count; ++i) {
          values.data[i] = static_cast<std::uint32_t>(i * 7 + as_index(world.rank()));
        }
        all_reduce(values.data, reduce_op::sum, world);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < count; ++i) {
          wrong += values.data[i] == static_cast<std::uint32_t>(9 * i * 7 + 36) ? 0 : 1;
        }
        CHECK(wrong == 0);
      }
      CHECK(node_chains(world) == 2);
    });
  }
}

TEST_CASE("numa: by default, 8 ranks on a node reduce shared buffers of 8 MiB along the chain, and no less") {
  if (under_thread_sanitizer) {
    return;  // the other cases take the same ways
  }
  const auto chains = [](int first, int second, std::size_t bytes) {
    std::vector<int> nodes_of_ranks(as_index(first), 0);
    nodes_of_ranks.resize(as_index(first + second), 1);
    const pretended_nodes nodes(nodes_of_ranks);
    std::atomic<std::uint64_t> count{0};
    run_ranks(first + second, [&](const process_group& world) {
      barrier(world);
      auto values = world.allocate<std::int32_t>(bytes / 4);
      std::fill(values.begin(), values.end(), world.rank());
      all_reduce(values, reduce_op::sum, world);
      CHECK(values[values.size() - 1] == world.size() * (world.size() - 1) / 2);
      count += node_chains(world);
    });
    return count.load();
  };
  constexpr std::size_t least = std::size_t{8} << 20;
  CHECK(chains(8, 8, least) == 16);
  CHECK(chains(8, 8, least - 4) == 0);
  CHECK(chains(8, 7, least) == 0);
}

TEST_CASE("numa: a rank that may run on several nodes switches the chain off for its groups") {
  const pretended_nodes nodes("0,0,1,1,-1");
  run_ranks(5, [](const process_group& world) {
    const auto group = world.split(world.rank() < 4 ? 0 : 1, 0);
    const auto reduce_on = [](const process_group& on) {
      chain_from(1, on);
      std::vector<float> values(100'000, 1);
      all_reduce(values, reduce_op::sum, on);
      CHECK(values.back() == static_cast<float>(on.size()));
    };
    reduce_on(world);
    CHECK(node_chains(world) == 0);
    if (world.rank() < 4) {
      barrier(group);
      reduce_on(group);
      CHECK(node_chains(group) == 1);
    }
    // A subgroup has the nodes of its ranks.
    if (const auto one_node = world.subgroup({0, 1})) {
      barrier(*one_node);
      reduce_on(*one_node);
      CHECK(node_chains(*one_node) == 0);
    }
    barrier(world);
  });
}

TEST_CASE("numa: a call that differs is a mismatch_error on all ranks, and the group goes on") {
  const pretended_nodes nodes("0,0,1,1");
  run_ranks(4, [](const process_group& world) {
    barrier(world);
    chain_from(1, world);
    std::vector<float> values(100'000 + (world.rank() == 3 ? 1 : 0));
    CHECK_THROWS_AS(all_reduce(values, reduce_op::sum, world), mismatch_error);
    std::vector<float> others(100'000, 1);
    all_reduce(others, reduce_op::sum, world);
    CHECK(others.back() == 4);
  });
}

TEST_CASE("numa: a wrong HFCOMM_NUMA_NODES is an engine_error that names it") {
  for (const auto* list : {"0", "0,x", "0,1 ", "a", "0,,1", "0,-2"}) {
    CAPTURE(list);
    const pretended_nodes nodes{std::string(list)};
    const auto problem = error_of<engine_error>([] { run_ranks(2, [](const process_group&) {}); });
    CHECK_CONTAINS(problem.what(), "HFCOMM_NUMA_NODES");
  }
}

TEST_CASE("numa: groups across machines have no nodes") {
  const pretended_nodes nodes("0,0,1,1");
  on_machines({2, 2}, [](const process_group& world) {
    barrier(world);
    chain_from(1, world);
    std::vector<float> values(100'000, 1);
    all_reduce(values, reduce_op::sum, world);
    CHECK(values.back() == 4);
    CHECK(node_chains(world) == 0);
  });
}

}  // namespace numa_nodes
