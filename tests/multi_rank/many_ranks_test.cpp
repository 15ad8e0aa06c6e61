// SPDX-License-Identifier: MIT
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "ranks.hpp"

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// More ranks have smaller slots: each of these numbers of ranks has another slot size.
TEST_CASE("many ranks: every path of the engine works with every slot size") {
  for (const int ranks : {12, 40}) {
    run_noted(ranks, {}, [](const process_group& world) {
      const auto n = as_index(world.size());
      const auto me = static_cast<std::int64_t>(world.rank());
      const auto all = static_cast<std::int64_t>(world.size());
      const std::int64_t sum_of_ranks = all * (all - 1) / 2;
      for (const std::size_t count : each_of(1, 3, 1'000, 20'011)) {
        std::vector<std::int64_t> data(count, me);
        all_reduce(data);
        CHECK((data == std::vector<std::int64_t>(count, sum_of_ranks)));

        data.assign(count, me);
        broadcast(std::span(data), world.size() - 1);
        CHECK((data == std::vector<std::int64_t>(count, all - 1)));

        const std::vector<std::int64_t> mine(count, me);
        std::vector<std::int64_t> table(count * n, -1);
        all_gather(mine, table);
        std::size_t wrong = 0;
        for (std::size_t place = 0; place < table.size(); ++place) {
          wrong += table[place] != static_cast<std::int64_t>(place / count) ? 1U : 0U;
        }
        CHECK(wrong == 0);

        std::vector<std::int64_t> row(count * n);
        for (std::size_t place = 0; place < row.size(); ++place) {
          row[place] = me * all + static_cast<std::int64_t>(place / count);
        }
        all_to_all(row, table);
        wrong = 0;
        for (std::size_t place = 0; place < table.size(); ++place) {
          wrong += table[place] != static_cast<std::int64_t>(place / count) * all + me ? 1U : 0U;
        }
        CHECK(wrong == 0);

        std::vector<std::int64_t> part(count);
        reduce_scatter(row, part);
        CHECK((part == std::vector<std::int64_t>(count, sum_of_ranks * all + all * me)));

        const std::string text(count, static_cast<char>('a' + world.rank() % 26));
        const auto texts = gather(text, 1);
        CHECK(texts.size() == (world.rank() == 1 ? n : 0));
        for (std::size_t from = 0; from < texts.size(); ++from) {
          CHECK((texts[from] == std::string(count, static_cast<char>('a' + from % 26))));
        }
      }
    });
  }
}

TEST_CASE("many ranks: parts of different lengths work, also as the first operation") {
  for (const int ranks : {12, 40}) {
    run_noted(ranks, {}, [](const process_group& world) {
      const auto length = [](int from, int to) { return as_index((from * 7 + to * 3) % 5) * 700; };
      std::vector<std::size_t> in_counts;
      std::vector<std::size_t> out_counts;
      std::vector<int> in;
      std::vector<int> expected;
      for (int other = 0; other < world.size(); ++other) {
        in_counts.push_back(length(world.rank(), other));
        out_counts.push_back(length(other, world.rank()));
        in.resize(in.size() + in_counts.back(), world.rank() * 1000 + other);
        expected.resize(expected.size() + out_counts.back(), other * 1000 + world.rank());
      }
      std::vector<int> out(expected.size());
      all_to_all(in, in_counts, out, out_counts);
      CHECK((out == expected));
    });
  }
}

}  // namespace
