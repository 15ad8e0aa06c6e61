// SPDX-License-Identifier: MIT
#include "torch_ranks.hpp"

namespace {

using namespace torch_ranks;
using hfcomm::mismatch_error;
using hfcomm::peer_error;
using hfcomm::reduce_op;
using hfcomm::usage_error;
namespace ht = hfcomm::torch;

/// Returns the rows of rank r's part: 0, 1, 2.
std::vector<std::size_t> rows_of_ranks(int ranks) {
  std::vector<std::size_t> rows;
  for (int rank = 0; rank < ranks; ++rank) {
    rows.push_back(as_index(rank));
  }
  return rows;
}

/// Returns a rank's part, as many rows of 3 as its number.
at::Tensor part_of(int rank) { return at::arange(3 * rank, at::kLong).reshape({rank, 3}).add(10 * rank); }

at::Tensor parts_of_all(int ranks) {
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < ranks; ++rank) {
    parts.push_back(part_of(rank));
  }
  return at::cat(parts);
}

TEST_CASE("torch uneven: parts of different numbers of rows, contiguous or not, blocking and started") {
  at_each_size([](const process_group& world) {
    const int ranks = world.size();
    const auto rows = rows_of_ranks(ranks);
    const at::Tensor all = parts_of_all(ranks);
    const at::Tensor mine = part_of(world.rank());
    const int root = ranks - 1;
    const auto empty_like_all = [&](bool is_contiguous) {
      return is_contiguous ? at::zeros_like(all) : at::zeros({3, all.size(0)}, at::kLong).t();
    };
    for (const bool waits : {true, false}) {
      for (const bool is_contiguous : {true, false}) {
        at::Tensor gathered = empty_like_all(is_contiguous);
        waits ? ht::all_gather(mine, gathered, rows) : ht::all_gather_async(mine, gathered, rows).wait();
        CHECK(at::equal(gathered, all));

        at::Tensor rooted = world.rank() == root ? empty_like_all(is_contiguous) : at::Tensor();
        waits ? ht::gather(mine, rooted, rows, root) : ht::gather_async(mine, rooted, rows, root).wait();
        CHECK((world.rank() != root || at::equal(rooted, all)));

        at::Tensor part = at::zeros_like(mine);
        waits ? ht::scatter(rooted, part, rows, root) : ht::scatter_async(rooted, part, rows, root).wait();
        CHECK(at::equal(part, mine));

        at::Tensor sum = at::zeros_like(mine);
        waits ? ht::reduce_scatter(all, sum, rows) : ht::reduce_scatter_async(all, sum, rows).wait();
        CHECK(at::equal(sum, mine * ranks));

        // Rank s sends rank r part r, and gets its own part from everyone.
        const std::vector<std::size_t> own_rows(as_index(ranks), as_index(world.rank()));
        at::Tensor exchanged = at::zeros({ranks * world.rank(), 3}, at::kLong);
        waits ? ht::all_to_all(all, rows, exchanged, own_rows)
              : ht::all_to_all_async(all, rows, exchanged, own_rows).wait();
        CHECK(at::equal(exchanged, mine.repeat({ranks, 1})));
      }
    }
  });
}

TEST_CASE("torch uneven: a span on another rank is the same operation, with counts in elements") {
  run_noted(2, "", [](const process_group& world) {
    std::vector<std::int64_t> all(9);
    at::Tensor tensor = at::zeros({3, 3}, at::kLong);
    if (world.rank() == 0) {
      const std::vector<std::int64_t> mine{1, 2, 3};
      hfcomm::all_gather(mine, all, std::vector<std::size_t>{3, 6});
    } else {
      ht::all_gather(at::arange(4, 10, at::kLong).reshape({2, 3}), tensor, std::vector<std::size_t>{1, 2});
      CHECK(at::equal(tensor, at::arange(1, 10, at::kLong).reshape({3, 3})));
    }
  });
}

TEST_CASE("torch uneven: counts that do not fit are an error on every rank") {
  at_each_size(
      [](const process_group& world) {
        const auto rows = rows_of_ranks(world.size());
        const at::Tensor all = at::zeros_like(parts_of_all(world.size()));
        const at::Tensor mine = part_of(world.rank());
        for (const bool waits : {true, false}) {
          const auto gather = [&](const at::Tensor& in, const at::Tensor& out, const std::vector<std::size_t>& counts) {
            waits ? ht::all_gather(in, out, counts) : ht::all_gather_async(in, out, counts).wait();
          };
          const auto check_refused = [&](const char* text, auto&& wrong) {
            if (world.rank() == 1) {
              CHECK_CONTAINS(error_of<usage_error>(wrong).what(), text);
            } else {
              CHECK_CONTAINS(error_of<peer_error>([&] { gather(mine, all, rows); }).what(), text);
            }
            check_usable(world);
          };
          check_refused("one of the output 4", [&] { gather(mine, at::zeros({all.size(0), 4}, at::kLong), rows); });
          check_refused("has no rows", [&] { gather(at::scalar_tensor(1, at::kLong), all, rows); });
          check_refused("counts", [&] { gather(mine, all, {}); });
          check_refused("counts", [&] {
            auto huge = rows;
            huge.back() = ~std::size_t{0} / 2;
            gather(mine, all, huge);
          });
          CHECK_CONTAINS(error_of<mismatch_error>([&] {
                           auto other = rows;
                           if (world.rank() == 0) {
                             std::swap(other[0], other[1]);
                             gather(part_of(1), all, other);
                           } else {
                             gather(mine, all, rows);
                           }
                         }).what(),
                         "all_gather");
          check_usable(world);
        }
      },
      2);
}

}  // namespace
