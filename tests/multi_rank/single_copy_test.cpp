// SPDX-License-Identifier: MIT
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>

#include "../single_copies.hpp"
#include "parts.hpp"

#include <hfcomm/collectives/all_to_all.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/ways.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// Parts of this length and longer may be read in place; the cores of the machine decide.
constexpr std::size_t least = engines::layout::piece_bytes / sizeof(std::int32_t);
const std::size_t enough = engines::layout::dimensions::for_ranks(2).slot_bytes / sizeof(std::int32_t);

std::int32_t element(int from, int to, std::size_t index) {
  return static_cast<std::int32_t>(index * 64) + from * 8 + to;
}

TEST_CASE("single copy: equal parts around the length from which they are read in place are exact") {
  at_every_size([](const process_group& world) {
    barrier();
    for (const std::size_t count : each_of(least - 1, least, least + 1, enough - 1, enough, enough + 1)) {
      std::vector<std::int32_t> in;
      for (int to = 0; to < world.size(); ++to) {
        for (std::size_t index = 0; index < count; ++index) {
          in.push_back(element(world.rank(), to, index));
        }
      }
      std::vector<std::int32_t> out(in.size());
      all_to_all(in, out);
      std::fill(in.begin(), in.end(), -1);  // nobody reads it any more
      std::size_t wrong = 0;
      for (std::size_t place = 0; place < out.size(); ++place) {
        wrong += out[place] != element(static_cast<int>(place / count), world.rank(), place % count) ? 1U : 0U;
      }
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("single copy: one long part among short and empty ones is exact, for elements and objects") {
  at_every_size([](const process_group& world) {
    barrier();
    const auto length = [&](int from, int to) {
      return from == 0 && to == world.size() - 1 ? enough + 1 : as_index((from + 2 * to) % 3) * 5;
    };
    std::vector<std::size_t> in_counts;
    std::vector<std::size_t> out_counts;
    std::vector<std::int32_t> in;
    std::vector<std::string> texts;
    for (int other = 0; other < world.size(); ++other) {
      in_counts.push_back(length(world.rank(), other));
      out_counts.push_back(length(other, world.rank()));
      in.resize(in.size() + in_counts.back(), element(world.rank(), other, 0));
      texts.push_back(text_of(world.rank() * 8 + other, 4 * in_counts.back()));
    }
    for (int round = 0; round < 2; ++round) {
      std::size_t total = 0;
      for (const std::size_t count : out_counts) {
        total += count;
      }
      std::vector<std::int32_t> out(total);
      all_to_all(in, in_counts, out, out_counts);
      std::vector<std::int32_t> expected;
      for (int from = 0; from < world.size(); ++from) {
        expected.resize(expected.size() + length(from, world.rank()), element(from, world.rank(), 0));
      }
      CHECK((out == expected));
      const auto got = all_to_all(texts);
      for (int from = 0; from < world.size(); ++from) {
        CHECK((got[as_index(from)] == text_of(from * 8 + world.rank(), 4 * length(from, world.rank()))));
      }
    }
  });
}

TEST_CASE("single copy: only long parts use it, from the second operation on") {
  if (!can_read_memory()) {
    std::puts("[hfcomm] skipped: single copy: only long parts use it: no process may read another one's memory here");
    return;
  }
  at_every_size(
      [](const process_group& world) {
        const auto exchange = [&](std::size_t count) {
          const std::vector<std::size_t> counts(as_index(world.size()), count);
          const std::vector<std::int32_t> in(count * counts.size(), world.rank());
          std::vector<std::int32_t> out(in.size(), -1);
          all_to_all(in, counts, out, counts, world);
          CHECK(out.front() == 0);
          CHECK(out.back() == world.size() - 1);
          return single_copies(world);
        };
        CHECK(exchange(enough) == 0);
        CHECK(exchange(least - 1) == 0);
        CHECK(exchange(enough) == 1);
        CHECK(exchange(enough) == 2);
      },
      2);
}

TEST_CASE("single copy: every operation on long buffers tries it") {
  if (!can_read_memory()) {
    std::puts("[hfcomm] skipped: single copy: every operation tries it: no process may read another one's memory here");
    return;
  }
  for (const int size : rank_counts_from(2)) {
    engines::tuning_table::of_process().reset(engines::tuning_mode::thorough);
    run_ranks(size, [](const process_group& world) {
      barrier();
      const auto ranks = as_index(world.size());
      const std::size_t count = enough + (world.size() == 3 ? 1 : 0);
      const std::vector<std::int32_t> in(count * ranks, 1);
      std::vector<std::int32_t> out(count * ranks, -1);
      const std::span<const std::int32_t> part_in(in.data(), count);
      const std::span<std::int32_t> part_out(out.data(), count);
      const std::vector<std::function<void()>> operations{
          [&] { all_gather(part_in, out, world); },
          [&] { broadcast(part_out, 0, world); },
          [&] { gather(part_in, out, 0, world); },
          [&] { scatter(in, part_out, 0, world); },
          [&] { all_to_all(in, out, world); },
          [&] { all_reduce(in, out, reduce_op::max, world); },
          [&] { reduce_scatter(in, part_out, reduce_op::max, world); },
      };
      for (const auto& operation : operations) {
        const std::uint64_t before = single_copies(world);
        for (int call = 0; call < engines::most_tuning_calls; ++call) {
          operation();
        }
        CHECK(single_copies(world) > before);
        CHECK(std::count(part_out.begin(), part_out.end(), 1) == static_cast<std::ptrdiff_t>(count));
      }
    });
  }
  engines::tuning_table::of_process().reset(engines::tuning_mode::brief);
}

TEST_CASE("single copy: results in memory that only its owner can read go through slots") {
  if (!can_read_memory()) {
    std::puts(
        "[hfcomm] skipped: single copy: results that only their owner can read: no process may read another one's");
    return;
  }
  engines::tuning_table& table = engines::tuning_table::of_process();
  for (const int size : rank_counts_from(2)) {
    constexpr std::size_t count = 50'000;
    table.reset(engines::tuning_mode::brief);
    for (const bool shares_cores : {false, true}) {
      table.set({size, shares_cores, engines::tuned_operation::all_reduce, 18}, {engines::kernel_way, 1});
    }
    run_ranks(size, [](const process_group& world) {
      barrier();
      const std::size_t bytes = count * sizeof(std::int32_t);
      void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      const std::span<std::int32_t> out(static_cast<std::int32_t*>(memory), count);
      const std::vector<std::int32_t> in(count, world.rank() + 1);
      std::vector<std::int32_t> ordinary(count);
      all_reduce(in, ordinary, reduce_op::sum, world);
      all_reduce(in, ordinary, reduce_op::sum, world);
      CHECK(single_copies(world) == 1);  // the first call proposes it
      ::mprotect(memory, bytes, world.rank() == 0 ? PROT_WRITE : PROT_READ | PROT_WRITE);
      all_reduce(in, out, reduce_op::sum, world);
      CHECK(single_copies(world) == 1);
      ::mprotect(memory, bytes, PROT_READ | PROT_WRITE);
      CHECK((std::vector<std::int32_t>(out.begin(), out.end()) == ordinary));
      ::munmap(memory, bytes);
    });
  }
  table.reset(engines::tuning_mode::brief);
}

}  // namespace
