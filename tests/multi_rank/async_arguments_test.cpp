// SPDX-License-Identifier: MIT
// Bad arguments of asynchronous collectives: the call itself throws, whatever the operation, and the other ranks are
// told in the operation's place.
#include "ranks.hpp"

#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include <hfcomm/collectives/coalesced.hpp>
#include <hfcomm/collectives/collect_results_in_files.hpp>
#include <hfcomm/ddp.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

using numbers = std::vector<float>;
using words = std::vector<std::string>;

/// One rank's arguments, good ones.
struct arguments {
  explicit arguments(const process_group& world)
      : objects_for_all(as_index(world.size())),
        objects_of_root(world.rank() == 0 ? objects_for_all : words{}),
        whole(2 * as_index(world.size())),
        counts(as_index(world.size()), 2) {}
  arguments(const arguments&) = delete;
  arguments& operator=(const arguments&) = delete;

  words object{"a"};
  words objects_for_all;
  words objects_of_root;
  numbers part = numbers(2);
  numbers other_part = numbers(2);
  numbers whole;  ///< A part for each rank.
  numbers other_whole = whole;
  std::span<float> view{part};
  std::vector<std::size_t> counts;
  std::vector<std::size_t> indices{0, 1};
  std::vector<std::span<float>> list{std::span(part), std::span(other_part)};
  reduce_op op = reduce_op::sum;
};

constexpr auto add = [](float one, float other) { return one + other; };

/// `start(arguments, root, world)` starts an operation; `spoil(arguments)` makes an argument of it bad. The last rank
/// must get a usage_error with `text` where it starts the operation, all others a peer_error that quotes it where they
/// wait. Then the group must still work.
template <class Spoil, class Start>
void check_refused(const std::string& text, int bad_root, Spoil spoil, Start start) {
  at_every_size([&](const process_group& world) {
    arguments mine(world);
    const int odd = world.size() - 1;
    if (world.rank() == odd) {
      spoil(mine);
      const auto problem = error_of<usage_error>([&] { (void)start(mine, bad_root, world); });
      CHECK_CONTAINS(problem.what(), text);
      CHECK_CONTAINS(problem.what(), "async_arguments_test.cpp");
    } else {
      auto pending = start(mine, 0, world);
      const auto problem = error_of<peer_error>([&] { (void)pending.wait(); });
      CHECK(problem.peer() == odd);
      CHECK_FALSE(problem.fatal());
      CHECK_CONTAINS(problem.what(), text);
    }
    check_usable(world);
  });
}

template <class Start>
void check_root_refused(Start start) {
  check_refused("root 99", 99, [](arguments&) {}, start);
}

template <class Spoil, class Start>
void check_argument_refused(const std::string& text, Spoil spoil, Start start) {
  check_refused(text, 0, spoil, [&](arguments& mine, int, const process_group& world) { return start(mine, world); });
}

}  // namespace

TEST_CASE("async arguments: a root that is no rank is refused at the call, of objects") {
  check_root_refused(
      [](arguments& mine, int root, const auto& world) { return gather_async(mine.object, root, world); });
  check_root_refused(
      [](arguments& mine, int root, const auto& world) { return broadcast_async(mine.object, root, world); });
  check_root_refused(
      [](arguments& mine, int root, const auto& world) { return scatter_async(mine.objects_of_root, root, world); });
  check_root_refused([](arguments& mine, int root, const auto& world) {
    return reduce_async(mine.object, root, [](words one, const words&) { return one; }, world);
  });
  check_root_refused([](arguments&, int root, const auto& world) {
    return reduce_dict_async(std::map<std::string, float>{{"loss", 1.0F}}, reduce_op::sum, root, world);
  });
  check_root_refused([](arguments& mine, int root, const auto& world) {
    return broadcast_object_list_async(mine.object, root, world);
  });
  check_root_refused([](arguments& mine, int root, const auto& world) {
    return broadcast_object_list_async(std::tie(mine.object, mine.part), root, world);
  });
  check_root_refused([](arguments& mine, int root, const auto& world) {
    return collect_results_async(mine.part, as_index(world.size()), root, world);
  });
  check_root_refused([](arguments& mine, int root, const auto& world) {
    return collect_results_in_files_async(mine.part, as_index(world.size()), ".", root, world);
  });
}

TEST_CASE("async arguments: a root that is no rank is refused at the call, of buffers") {
  check_root_refused(
      [](arguments& mine, int root, const auto& world) { return broadcast_async(std::span(mine.part), root, world); });
  check_root_refused(
      [](arguments& mine, int root, const auto& world) { return broadcast_async(mine.list, root, world); });
  check_root_refused([](arguments& mine, int root, const auto& world) {
    return broadcast_async(mine.list, root, coalesce_options{.chunk_bytes = 8}, world);
  });
  check_root_refused(
      [](arguments& mine, int root, const auto& world) { return gather_async(mine.part, mine.whole, root, world); });
  check_root_refused([](arguments& mine, int root, const auto& world) {
    return gather_async(mine.part, mine.whole, mine.counts, root, world);
  });
  check_root_refused(
      [](arguments& mine, int root, const auto& world) { return gather_v_async(mine.part, root, world); });
  check_root_refused(
      [](arguments& mine, int root, const auto& world) { return scatter_async(mine.whole, mine.part, root, world); });
  check_root_refused([](arguments& mine, int root, const auto& world) {
    return scatter_async(mine.whole, mine.part, mine.counts, root, world);
  });
  check_root_refused([](arguments& mine, int root, const auto& world) {
    return reduce_async(mine.part, mine.other_part, root, reduce_op::sum, world);
  });
  check_root_refused([](arguments& mine, int root, const auto& world) {
    return reduce_async(mine.part, root, reduce_op::sum, world);
  });
  check_root_refused([](arguments& mine, int root, const auto& world) {
    return reduce_async(mine.part.front(), root, reduce_op::sum, world);
  });
  check_root_refused([](arguments& mine, int root, const auto& world) {
    return reduce_async(std::span(mine.part), root, add, world);
  });
}

TEST_CASE("async arguments: buffers of a wrong length are refused at the call") {
  const auto shorten_part = [](arguments& mine) { mine.part.resize(1); };
  const auto shorten_whole = [](arguments& mine) { mine.whole.resize(1); };
  check_argument_refused("the output has 1 elements", shorten_whole, [](arguments& mine, const auto& world) {
    return all_gather_async(mine.part, mine.whole, world);
  });
  check_argument_refused("the output has 1 elements", shorten_whole, [](arguments& mine, const auto& world) {
    return all_gather_async(mine.part, mine.whole, mine.counts, world);
  });
  check_argument_refused("the output has 1 elements", shorten_part, [](arguments& mine, const auto& world) {
    return all_reduce_async(mine.other_part, mine.part, reduce_op::sum, world);
  });
  check_argument_refused("the output has 1 elements", shorten_whole, [](arguments& mine, const auto& world) {
    return all_to_all_async(mine.other_whole, mine.whole, world);
  });
  check_argument_refused("the input has 1 elements", shorten_whole, [](arguments& mine, const auto& world) {
    return all_to_all_async(mine.whole, mine.counts, mine.other_whole, mine.counts, world);
  });
  check_argument_refused("the input has 1 elements", shorten_whole, [](arguments& mine, const auto& world) {
    return all_to_all_v_async(mine.whole, mine.counts, world);
  });
  check_argument_refused("the input has 1 elements", shorten_whole, [](arguments& mine, const auto& world) {
    return reduce_scatter_async(mine.whole, mine.part, reduce_op::sum, world);
  });
  check_argument_refused("the input has 1 elements", shorten_whole, [](arguments& mine, const auto& world) {
    return reduce_scatter_async(mine.whole, mine.part, mine.counts, reduce_op::sum, world);
  });
  check_argument_refused("the output has 1 elements", shorten_part, [](arguments& mine, const auto& world) {
    return scan_async(mine.other_part, mine.part, reduce_op::sum, world);
  });
  check_argument_refused("the output has 1 elements", shorten_part, [](arguments& mine, const auto& world) {
    return exclusive_scan_async(mine.other_part, mine.part, reduce_op::sum, world);
  });
}

TEST_CASE("async arguments: memory at address 0 is refused at the call") {
  const auto lose_memory = [](arguments& mine) { mine.view = std::span(static_cast<float*>(nullptr), 2); };
  const auto refused = [&](auto start) { check_argument_refused("address 0", lose_memory, start); };
  refused([](arguments& mine, const auto& world) { return broadcast_async(mine.view, 0, world); });
  refused([](arguments& mine, const auto& world) { return all_gather_v_async(mine.view, world); });
  refused([](arguments& mine, const auto& world) { return all_reduce_async(mine.view, reduce_op::sum, world); });
  refused([](arguments& mine, const auto& world) { return all_reduce_async(mine.view, add, world); });
  refused([](arguments& mine, const auto& world) { return scan_async(mine.view, reduce_op::sum, world); });
  refused([](arguments& mine, const auto& world) { return scan_async(mine.view, add, world); });
  refused([](arguments& mine, const auto& world) { return exclusive_scan_async(mine.view, reduce_op::sum, world); });
  refused([](arguments& mine, const auto& world) { return exclusive_scan_async(mine.view, 0.0F, add, world); });
  refused([](arguments& mine, const auto& world) {
    return all_reduce_params_async({named_parameter("weight", std::span(mine.part), mine.view)}, reduce_op::sum,
                                   1 << 20, world);
  });
  refused([](arguments& mine, const auto& world) {
    return all_reduce_param_values_async({named_parameter("weight", mine.view, std::span(mine.part))}, reduce_op::sum,
                                         1 << 20, world);
  });
}

TEST_CASE("async arguments: spans that overlap, and a reduction that is not there, are refused at the call") {
  const auto repeat_span = [](arguments& mine) { mine.list.back() = mine.list.front(); };
  check_argument_refused("overlap", repeat_span,
                         [](arguments& mine, const auto& world) { return broadcast_async(mine.list, 0, world); });
  check_argument_refused("overlap", repeat_span, [](arguments& mine, const auto& world) {
    return all_reduce_async(mine.list, reduce_op::sum, world);
  });
  check_argument_refused("overlap", repeat_span, [](arguments& mine, const auto& world) {
    return all_reduce_async(mine.list, reduce_op::sum, coalesce_options{.chunk_bytes = 8}, world);
  });

  const auto lose_factor = [](arguments& mine) {
    mine.op = reduce_op::premultiplied_sum(std::numeric_limits<double>::quiet_NaN());
  };
  check_argument_refused("not a number", lose_factor, [](arguments& mine, const auto& world) {
    return all_reduce_async(mine.part.front(), mine.op, world);
  });
  check_argument_refused("not a number", lose_factor, [](arguments& mine, const auto& world) {
    return all_reduce_dict_async(std::map<std::string, float>{{"loss", 1.0F}}, mine.op, world);
  });
  const auto average = [](arguments& mine) { mine.op = reduce_op::average; };
  check_argument_refused("a scan has no average", average, [](arguments& mine, const auto& world) {
    return scan_async(mine.part.front(), mine.op, world);
  });
  check_argument_refused("a scan has no average", average, [](arguments& mine, const auto& world) {
    return exclusive_scan_async(mine.part.front(), mine.op, world);
  });
}

TEST_CASE("async arguments: lists that do not fit the ranks are refused at the call") {
  check_argument_refused(
      "99 objects", [](arguments& mine) { mine.objects_for_all.resize(99); },
      [](arguments& mine, const auto& world) { return all_to_all_async(mine.objects_for_all, world); });
  check_argument_refused(
      "99 objects", [](arguments& mine) { mine.objects_of_root.resize(99); },
      [](arguments& mine, const auto& world) { return scatter_async(mine.objects_of_root, 0, world); });
  check_argument_refused(
      "index 99", [](arguments& mine) { mine.indices.back() = 99; },
      [](arguments& mine, const auto& world) { return collect_results_async(mine.indices, mine.part, 2, 0, world); });
}

TEST_CASE("async arguments: a refused call keeps its place among the operations that were started") {
  at_every_size([](const process_group& world) {
    const bool is_odd = world.rank() == world.size() - 1;
    numbers part(2, 1.0F);
    auto before = all_reduce_async(1, reduce_op::sum, world);
    if (is_odd) {
      CHECK_THROWS_AS((void)gather_async(part, 99, world), usage_error);
    }
    auto refused = is_odd ? std::optional<work<std::vector<numbers>>>() : gather_async(part, 0, world);
    auto after = all_reduce_async(10, reduce_op::sum, world);
    CHECK(before.wait() == world.size());
    CHECK(after.wait() == 10 * world.size());
    if (refused) {
      CHECK_THROWS_AS((void)refused->wait(), peer_error);
    }
    check_usable(world);
  });
}
