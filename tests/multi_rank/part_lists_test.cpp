// SPDX-License-Identifier: MIT
// Collectives whose parts are in lists of views.
#include <cstddef>
#include <list>
#include <span>

#include "machines.hpp"
#include "parts.hpp"

#include <hfcomm/collectives/part_lists.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

using one_part = std::vector<std::uint32_t>;
using separate_parts = std::vector<one_part>;

template <class T = std::uint32_t>
std::vector<std::span<T>> views_over(auto& list) {
  return {list.begin(), list.end()};
}

/// Parts of these lengths, each in memory of its own, filled with a value that no part has.
separate_parts unset_parts(const std::vector<std::size_t>& counts) {
  separate_parts list;
  for (const std::size_t count : counts) {
    list.emplace_back(count, 77);
  }
  return list;
}

/// The parts that `from` sends to each rank; `from` -1: that each rank sends to `to`.
separate_parts separate_parts_of(const std::vector<std::size_t>& counts, int from, int to) {
  separate_parts list;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    const int other = static_cast<int>(rank);
    list.push_back(part_of(from < 0 ? other : from, to < 0 ? other : to, counts[rank]));
  }
  return list;
}

separate_parts threes(std::size_t count) { return {count, one_part(3)}; }

template <class RankMain>
void with_all_lists(RankMain rank_main) {
  for (const int ranks : rank_counts) {
    for (const auto& counts : uneven_counts(ranks)) {
      run_noted(ranks, text_of_counts(counts), [&](const process_group& world) { rank_main(world, counts); });
    }
  }
  for (const machine_layout& machines : {machine_layout{1, 1}, machine_layout{2, 1}}) {
    const int ranks = ranks_in(machines);
    for (const auto& counts : uneven_counts(ranks)) {
      on_machines(machines, [&](const process_group& world) { rank_main(world, counts); });
    }
  }
}

}  // namespace

TEST_CASE("part lists: all_gather fills the views, in place as well, and fits the form with counts") {
  with_all_lists([](const process_group& world, const std::vector<std::size_t>& counts) {
    const auto me = as_index(world.rank());
    const auto in = part_of(world.rank(), 0, counts[me]);
    const auto expected = separate_parts_of(counts, -1, 0);
    auto out = unset_parts(counts);
    all_gather(in, views_over(out));
    CHECK((out == expected));

    auto in_place = unset_parts(counts);
    in_place[me] = in;
    const auto places = views_over(in_place);
    all_gather(std::span(in_place[me]), places);
    CHECK((in_place == expected));

    auto started = unset_parts(counts);
    all_gather_async(in, views_over(started)).wait();
    CHECK((started == expected));

    auto mixed = unset_parts(counts);
    one_part table(sum_of(counts));
    world.rank() % 2 == 0 ? all_gather(in, views_over(mixed)) : all_gather(in, table, counts);
    CHECK((mixed == expected || world.rank() % 2 == 1));
  });
}

TEST_CASE("part lists: gather fills the root's views; elsewhere they are ignored") {
  with_all_lists([](const process_group& world, const std::vector<std::size_t>& counts) {
    const auto me = as_index(world.rank());
    for (int root = 0; root < world.size(); ++root) {
      const bool is_root = world.rank() == root;
      const auto in = part_of(world.rank(), root, counts[me]);
      const auto expected = is_root ? separate_parts_of(counts, -1, root) : separate_parts();
      auto out = is_root ? unset_parts(counts) : separate_parts();
      gather(in, views_over(out), root);
      CHECK((out == expected));

      auto in_place = is_root ? unset_parts(counts) : separate_parts(1, in);
      one_part& own = in_place[is_root ? me : 0];
      own = in;
      gather_async(std::span(own), views_over(in_place), root).wait();
      CHECK((in_place == (is_root ? expected : separate_parts(1, in))));
    }
  });
}

TEST_CASE("part lists: scatter gives each rank the elements of its view") {
  with_all_lists([](const process_group& world, const std::vector<std::size_t>& counts) {
    const auto me = as_index(world.rank());
    for (int root = 0; root < world.size(); ++root) {
      const bool is_root = world.rank() == root;
      auto in = is_root ? separate_parts_of(counts, root, -1) : separate_parts();
      const auto untouched = in;
      const auto expected = part_of(root, world.rank(), counts[me]);
      one_part out(counts[me], 77);
      scatter(views_over<const std::uint32_t>(in), out, root);
      CHECK((out == expected));

      one_part elsewhere(counts[me], 77);
      one_part& place = is_root ? in[me] : elsewhere;
      scatter_async(views_over(in), std::span(place), root).wait();
      CHECK((place == expected));
      CHECK((in == untouched));
    }
  });
}

TEST_CASE("part lists: all_to_all sends and receives views") {
  with_all_lists([](const process_group& world, const std::vector<std::size_t>& counts) {
    // Rank r sends counts[(r + to) % size] elements to rank `to`.
    const auto size = as_index(world.size());
    const auto me = as_index(world.rank());
    std::vector<std::size_t> lengths(size);
    for (std::size_t other = 0; other < size; ++other) {
      lengths[other] = counts[(me + other) % size];
    }
    const auto in = separate_parts_of(lengths, world.rank(), -1);
    const auto expected = separate_parts_of(lengths, -1, world.rank());
    auto out = unset_parts(lengths);
    all_to_all(views_over<const std::uint32_t>(in), views_over(out));
    CHECK((out == expected));
    auto started = unset_parts(lengths);
    all_to_all_async(views_over<const std::uint32_t>(in), views_over(started)).wait();
    CHECK((started == expected));
  });
}

TEST_CASE("part lists: reduce_scatter has the bits of the form with counts, wherever the views are") {
  with_all_lists([](const process_group& world, const std::vector<std::size_t>& counts) {
    const auto me = as_index(world.rank());
    const auto table = values_of<float>(world.rank(), sum_of(counts));
    std::vector<std::span<const float>> behind_each_other;
    std::list<std::vector<float>> apart;
    std::size_t begin = 0;
    for (const std::size_t count : counts) {
      behind_each_other.push_back(std::span(table).subspan(begin, count));
      apart.emplace_back(behind_each_other.back().begin(), behind_each_other.back().end());
      begin += count;
    }
    std::vector<float> expected(counts[me]);
    reduce_scatter(table, expected, counts);
    std::vector<float> out(counts[me]);
    reduce_scatter(behind_each_other, out);
    CHECK(same_bits(out, expected));
    out.assign(out.size(), 0);
    reduce_scatter(views_over<const float>(apart), out);
    CHECK(same_bits(out, expected));
    auto& own = *std::next(apart.begin(), world.rank());
    reduce_scatter_async(views_over<const float>(apart), std::span(own), reduce_op::sum).wait();
    CHECK(same_bits(own, expected));
    world.rank() % 2 == 0 ? reduce_scatter(behind_each_other, out, reduce_op::max)
                          : reduce_scatter(table, out, counts, reduce_op::max);
  });
}

TEST_CASE("part lists: lists that do not fit a rank's own buffers are usage_errors, and the others learn of it") {
  at_every_size(
      [](const process_group& world) {
        const auto size = as_index(world.size());
        const bool is_wrong = world.rank() == 1;
        const auto check = [&](const char* text, auto call) {
          if (is_wrong) {
            CHECK_CONTAINS(error_of<usage_error>(call).what(), text);
          } else {
            CHECK_CONTAINS(error_of<peer_error>(call).what(), text);
          }
          check_usable(world);
        };
        auto memory = threes(size);
        const auto list = views_over(memory);
        const one_part in(3);
        one_part out(3);
        const std::vector<std::span<const std::uint32_t>> from(size, in);
        std::vector<std::span<std::uint32_t>> others(size, std::span(out));

        auto wrong = list;
        wrong.pop_back();
        const auto too_short = is_wrong ? wrong : list;
        check(" views for ", [&] { all_gather(in, too_short); });
        check(" views for ", [&] { gather(in, too_short, 1); });
        check(" views for ", [&] { scatter(too_short, out, 1); });
        check(" views for ", [&] { all_to_all(from, too_short); });
        check(" views for ", [&] { all_to_all(is_wrong ? too_short : others, list); });
        check(" views for ", [&] { reduce_scatter(too_short, out); });

        wrong = list;
        wrong[0] = wrong[1].subspan(0, 2);
        const auto overlapping = is_wrong ? wrong : list;
        check("overlap", [&] { all_gather(in, overlapping); });
        check("overlap", [&] { gather(in, overlapping, 1); });
        check("overlap", [&] { all_to_all(from, overlapping); });
        check("overlap", [&] { all_to_all(is_wrong ? list : others, list); });
        check("overlap", [&] { scatter(list, is_wrong ? list[0] : std::span(out), 1); });
        check("overlap", [&] { reduce_scatter(list, is_wrong ? list[0] : std::span(out)); });

        const auto own = std::span(in).first(is_wrong ? 2 : 3);
        check("the part for itself has", [&] { all_gather(own, list); });
        check("the part for itself has", [&] { gather(own, list, 1); });
        check("the part for itself has", [&] { scatter(list, std::span(out).first(own.size()), 1); });
        check("the part for itself has", [&] { reduce_scatter(list, std::span(out).first(own.size())); });

        wrong = list;
        wrong[0] = std::span(static_cast<std::uint32_t*>(nullptr), 3);
        const auto nowhere = is_wrong ? wrong : list;
        check("at address 0", [&] { all_gather(in, nowhere); });
        check("at address 0", [&] { all_to_all(is_wrong ? nowhere : others, list); });
        check("root 99", [&] { gather(in, list, is_wrong ? 99 : 0); });

        // Started ones are refused at the call; the others learn it by their own work.
        const auto check_started = [&](auto call) {
          if (is_wrong) {
            CHECK_CONTAINS(error_of<usage_error>([&] { (void)call(); }).what(), " views for ");
          } else {
            CHECK_CONTAINS(error_of<peer_error>([&] { call().wait(); }).what(), " views for ");
          }
          check_usable(world);
        };
        check_started([&] { return all_gather_async(in, too_short); });
        check_started([&] { return gather_async(in, too_short, 1); });
        check_started([&] { return scatter_async(too_short, out, 1); });
        check_started([&] { return all_to_all_async(from, too_short); });
        check_started([&] { return reduce_scatter_async(too_short, out); });
      },
      2);
}

TEST_CASE("part lists: lengths that differ between ranks are a mismatch_error on every rank") {
  at_every_size(
      [](const process_group& world) {
        const auto size = as_index(world.size());
        const bool differs = world.rank() == 1;
        auto memory = threes(size);
        memory[0].resize(differs ? 4 : 3);
        const auto list = views_over(memory);
        const one_part in(3);
        one_part out(3);
        CHECK_THROWS_AS(all_gather(in, list), mismatch_error);
        CHECK_THROWS_AS(gather(in, list, 1), mismatch_error);
        CHECK_THROWS_AS(scatter(list, out, 1), mismatch_error);
        auto elsewhere = threes(size);
        CHECK_THROWS_AS(all_to_all(list, views_over(elsewhere)), mismatch_error);
        CHECK_THROWS_AS(reduce_scatter(list, out), mismatch_error);
        check_usable(world);
      },
      2);
}
