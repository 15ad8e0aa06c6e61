// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/collectives/coalesced.hpp>
#include <hfcomm/group/detail/group_state.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

const std::vector<std::size_t> lengths{3, 0, 1, 40'000, 5, 0, 0, 20, 4'000, 1, 70'000, 2};
constexpr std::array chunks{std::size_t{0}, std::size_t{100}, std::size_t{200'000}, std::size_t{25} << 20};

/// Vectors of these lengths with values whose sums need rounding, and their views.
template <class T>
struct arrays {
  arrays(std::span<const std::size_t> sizes, int rank) {
    for (std::size_t index = 0; index < sizes.size(); ++index) {
      T* const place = data.emplace_back(sizes[index]).data();
      for (std::size_t i = 0; i < sizes[index]; ++i) {
        const float common = 0.1F * static_cast<float>((i * 7 + index * 13) % 101);
        place[i] = T(common + 10.0F / static_cast<float>(rank + 1));
      }
    }
  }
  [[nodiscard]] std::vector<std::span<T>> views() { return {data.begin(), data.end()}; }
  [[nodiscard]] bool same_bits(const arrays& other) const {
    for (std::size_t index = 0; index < data.size(); ++index) {
      const auto size = data[index].size();
      if (size != other.data[index].size() ||
          (size != 0 && std::memcmp(data[index].data(), other.data[index].data(), size * sizeof(T)) != 0)) {
        return false;
      }
    }
    return true;
  }
  std::vector<std::vector<T>> data;
};

TEST_CASE_TEMPLATE("coalesced all_reduce: it has the bits of reducing each span alone", T, float, std::int32_t,
                   bfloat16) {
  at_every_size([](const process_group& world) {
    const arrays<T> mine(lengths, world.rank());
    for (const std::size_t chunk : chunks) {
      for (const reduce_op op : std::array<reduce_op, 3>{reduce_op::sum, reduce_op::max, reduce_op::average}) {
        if (op == reduce_op::average && std::integral<T>) {
          continue;
        }
        arrays<T> together = mine;
        arrays<T> apart = mine;
        all_reduce(together.views(), op, {.chunk_bytes = chunk});
        for (auto& one : apart.data) {
          all_reduce(std::span(one), op);
        }
        CHECK_MESSAGE(together.same_bits(apart), "chunks of ", chunk, " bytes");
      }
    }
  });
}

TEST_CASE("coalesced broadcast: every rank gets the root's elements") {
  at_every_size([](const process_group& world) {
    for (const std::size_t chunk : chunks) {
      for (const int root : {0, world.size() - 1}) {
        arrays<float> mine(lengths, world.rank());
        const arrays<float> expected(lengths, root);
        broadcast(mine.views(), root, {.chunk_bytes = chunk});
        CHECK_MESSAGE(mine.same_bits(expected), "chunks of ", chunk, " bytes from ", root);
      }
    }
  });
}

TEST_CASE("coalesced: it takes any list of views, defaults and any group") {
  at_every_size([](const process_group& world) {
    arrays<float> mine(each_of(3, 4), world.rank());
    std::array<std::span<float>, 2> views{mine.data[0], mine.data[1]};
    const auto half = world.split(world.rank() % 2, -world.rank());
    broadcast(views, 0, half);
    const int root = all_reduce(world.rank(), reduce_op::max, half);
    CHECK(mine.same_bits(arrays<float>(each_of(3, 4), root)));
    all_reduce(std::span(views), reduce_op::max, half);
    CHECK(mine.same_bits(arrays<float>(each_of(3, 4), root)));

    std::vector<float> ones(5, 1.0F);
    all_reduce(std::vector<std::span<float>>{ones, std::span(ones).first(0)});
    CHECK((ones == std::vector<float>(5, static_cast<float>(world.size()))));
    enum class color : std::uint8_t { red, blue };
    std::vector<color> colors(3, world.rank() == 0 ? color::blue : color::red);
    broadcast(std::vector<std::span<color>>{std::span(colors).first(1), std::span(colors).last(2)});
    CHECK((colors == std::vector<color>(3, color::blue)));
  });
}

TEST_CASE("coalesced: lists may be empty or hold empty spans") {
  at_every_size([](const process_group& world) {
    broadcast(std::vector<std::span<float>>());
    all_reduce(std::vector<std::span<double>>());
    broadcast(std::vector<std::span<float>>(4));
    all_reduce(std::vector<std::span<double>>(4));
    check_usable(world);
  });
}

TEST_CASE("coalesced: without init the data is unchanged") {
  arrays<float> mine(lengths, 0);
  broadcast(mine.views(), 0, {.chunk_bytes = 100});
  all_reduce(mine.views(), reduce_op::average, {.chunk_bytes = 100});
  CHECK(mine.same_bits(arrays<float>(lengths, 0)));
  CHECK_THROWS_AS(broadcast(mine.views(), 1), usage_error);
}

TEST_CASE("coalesced: many spans take few operations") {
  run_noted(2, {}, [](const process_group& world) {
    const std::vector<std::size_t> small(1000, 8);
    arrays<float> mine(small, world.rank());
    const auto before = hfcomm::detail::group_access::engine(world).sequence();
    all_reduce(mine.views());
    broadcast(mine.views());
    CHECK(hfcomm::detail::group_access::engine(world).sequence() == before + 2);
    all_reduce(mine.views(), reduce_op::sum, {.chunk_bytes = 320});
    CHECK(hfcomm::detail::group_access::engine(world).sequence() == before + 2 + 100);
  });
}

/// Rank `odd` passes other spans than the others: every rank gets an error that says which, and no data changes.
void expect_different(const std::vector<std::size_t>& usual, const std::vector<std::size_t>& odd_one,
                      const std::string& text_of_usual, const std::string& text_of_odd) {
  for (const int ranks : {2, 3, 8}) {
    for (const int odd : {0, ranks - 1}) {
      for (const bool reduces : {false, true}) {
        run_noted(ranks, "odd is " + std::to_string(odd), [&](const process_group& world) {
          const bool is_odd = world.rank() == odd;
          arrays<float> mine(is_odd ? odd_one : usual, world.rank());
          const auto before = mine;
          line_note site;
          const auto problem = error_of<mismatch_error>([&] {
            reduces ? all_reduce(mine.views(), reduce_op::sum, site(world)) : broadcast(mine.views(), 0, site(world));
          });
          const int second = odd == 0 ? 1 : odd;
          CHECK(problem.first_rank() == 0);
          CHECK(problem.second_rank() == second);
          CHECK(problem.operation() == (reduces ? "coalesced all_reduce<float>" : "coalesced broadcast<float>"));
          CHECK_CONTAINS(problem.what(), site.text());
          CHECK_CONTAINS(problem.what(), "rank 0 has " + (odd == 0 ? text_of_odd : text_of_usual));
          CHECK_CONTAINS(problem.what(),
                         "rank " + std::to_string(second) + " has " + (odd == 0 ? text_of_usual : text_of_odd));
          check_same_everywhere(problem.detail(), world);
          CHECK(mine.same_bits(before));
          check_usable(world);
        });
      }
    }
  }
}

TEST_CASE("coalesced: lists that differ are an error on every rank that names the span") {
  expect_different({3, 4, 5}, {3, 4, 6}, "a span of 5 x float", "a span of 6 x float");
  expect_different({3, 4, 5}, {3, 5, 4}, "a span of 4 x float", "a span of 5 x float");
  expect_different({3, 4}, {3, 4, 0}, "nothing", "a span of 0 x float");
  expect_different({3}, {}, "a span of 3 x float", "nothing");
  expect_different({100'000, 100'000, 7}, {100'000, 100'000}, "a span of 7 x float", "nothing");
}

TEST_CASE("coalesced: different chunk sizes, roots, reductions or operations are a mismatch_error") {
  at_every_size(
      [](const process_group& world) {
        const bool odd = world.rank() == 1;
        arrays<float> mine(each_of(3, 4), world.rank());
        const auto before = mine;
        const auto chunk = error_of<mismatch_error>(
            [&] { all_reduce(mine.views(), reduce_op::sum, {.chunk_bytes = std::size_t{odd ? 8U : 16U}}); });
        CHECK_CONTAINS(chunk.what(), "rank 0 has chunks of up to 16 bytes, rank 1 has chunks of up to 8 bytes");
        check_usable(world);
        const auto root = error_of<mismatch_error>([&] { broadcast(mine.views(), odd ? 1 : 0); });
        CHECK_CONTAINS(root.what(), "root 1");
        check_usable(world);
        const auto op = error_of<mismatch_error>(
            [&] { all_reduce(mine.views(), odd ? reduce_op{reduce_op::max} : reduce_op::sum, {.chunk_bytes = 8}); });
        CHECK_CONTAINS(op.what(), "max");
        check_usable(world);
        const auto other = error_of<mismatch_error>([&] { odd ? barrier() : all_reduce(mine.views()); });
        CHECK_CONTAINS(other.what(), "barrier");
        check_usable(world);
        CHECK(mine.same_bits(before));
      },
      2);
}

TEST_CASE("coalesced: a bad argument on one rank is an error on every rank") {
  at_every_size([](const process_group& world) {
    const bool odd = world.rank() == world.size() - 1;
    arrays<std::int32_t> mine(each_of(3, 4), world.rank());
    const auto root = [&] { broadcast(mine.views(), odd ? world.size() : 0); };
    const auto average = [&] { all_reduce(mine.views(), odd ? reduce_op{reduce_op::average} : reduce_op::sum); };
    if (odd) {
      CHECK_CONTAINS(error_of<usage_error>(root).what(), "is not a rank of this group");
      CHECK_CONTAINS(error_of<usage_error>(average).what(), "average of int32");
    } else {
      CHECK_CONTAINS(error_of<peer_error>(root).what(), "is not a rank of this group");
      CHECK_CONTAINS(error_of<peer_error>(average).what(), "average of int32");
    }
    check_usable(world);
  });
}

TEST_CASE("coalesced: an earlier mismatch is not reported as one about the lists") {
  run_noted(3, {}, [](const process_group& world) {
    std::vector<float> data(4, 1.0F);
    const auto reduce_list = [&] { all_reduce(std::vector<std::span<float>>{data}, reduce_op::sum, world); };
    if (world.rank() == 2) {
      (void)error_of<mismatch_error>([] { barrier(); });
      CHECK(error_of<peer_error>(reduce_list).peer() == 0);
    } else {
      {
        const master_first section;  // in which neither rank 0 nor rank 1 waits for rank 2
      }
      CHECK_CONTAINS(error_of<mismatch_error>(reduce_list).what(), "barrier");
    }
    check_usable(world);
  });
}

TEST_CASE("coalesced: spans at address 0 and overlapping spans are an error on every rank") {
  at_every_size([](const process_group& world) {
    const bool odd = world.rank() == world.size() - 1;
    std::vector<float> data(8, 1.0F);
    const std::span<float> all(data);
    const std::vector<std::span<float>> good{all.first(3), all.last(4)};
    const auto expect = [&](const std::vector<std::span<float>>& bad, const std::string& text) {
      for (const bool reduces : {false, true}) {
        const auto call = [&] {
          const auto& list = odd ? bad : good;
          reduces ? all_reduce(list, reduce_op::sum, world) : broadcast(list, 0, world);
        };
        if (odd) {
          CHECK_CONTAINS(error_of<usage_error>(call).what(), text);
        } else {
          const auto problem = error_of<peer_error>(call);
          CHECK(problem.peer() == world.size() - 1);
          CHECK_CONTAINS(problem.what(), text);
        }
        check_usable(world);
      }
    };
    expect({all.first(3), std::span<float>(static_cast<float*>(nullptr), 4)},
           "span 1 of the list has 16 bytes at address 0");
    expect({all.first(3), all.subspan(2, 4)}, "spans 0 and 1 of the list overlap");
    expect({all.last(4), std::span<float>(), all.first(3), all.last(4)}, "spans 0 and 3 of the list overlap");
    expect({all, all.first(1), all.last(1)}, "spans 0 and 1 of the list overlap");
    CHECK((data == std::vector<float>(8, 1.0F)));
    all_reduce(std::vector<std::span<float>>{all.last(4), all.first(0), all.first(4), all.first(0)});
    CHECK((data == std::vector<float>(8, static_cast<float>(world.size()))));
  });
}

}  // namespace
