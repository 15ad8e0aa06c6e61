// SPDX-License-Identifier: MIT
#include "../multi_rank/ranks.hpp"

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/collectives/all_gather.hpp>
#include <hfcomm/collectives/all_reduce.hpp>
#include <hfcomm/collectives/broadcast.hpp>
#include <hfcomm/collectives/broadcast_object_list.hpp>
#include <hfcomm/collectives/coalesced.hpp>
#include <hfcomm/collectives/collect_results.hpp>
#include <hfcomm/collectives/exclusive_scan.hpp>
#include <hfcomm/collectives/gather.hpp>
#include <hfcomm/collectives/probe.hpp>
#include <hfcomm/collectives/recv.hpp>
#include <hfcomm/collectives/reduce.hpp>
#include <hfcomm/collectives/reduce_dict.hpp>
#include <hfcomm/collectives/reduce_scatter.hpp>
#include <hfcomm/collectives/scan.hpp>
#include <hfcomm/collectives/scatter.hpp>
#include <hfcomm/collectives/send.hpp>
#include <hfcomm/collectives/send_receive.hpp>
#include <hfcomm/ddp/all_reduce_params.hpp>

// The group, without the arguments that stand before it. A call in the wrong group would have another result: the world
// has twice as many ranks.
namespace {

using namespace hfcomm;
using namespace multi_rank;

/// Runs 4 ranks in two groups of 2, with the group's number.
template <class Main>
void in_pairs(Main main) {
  run_noted(4, {}, [&](const process_group& world) {
    const int number = world.rank() / 2;
    const process_group pair = world.split(number);
    main(pair, number);
    check_usable(pair);
  });
}

TEST_CASE("reductions take the group in the place of their operation") {
  in_pairs([](const process_group& pair, int /*number*/) {
    const int mine = pair.rank() + 1;
    CHECK(all_reduce(mine, pair) == 3);
    CHECK(all_reduce_async(mine, pair).wait() == 3);
    std::vector<int> data = {mine, 1};
    all_reduce(data, pair);
    CHECK(data == std::vector{3, 2});
    std::vector<int> out(2);
    all_reduce(data, out, pair);
    CHECK(out == std::vector{6, 4});
    all_reduce_async(out, pair).wait();
    CHECK(out == std::vector{12, 8});
    std::vector<std::span<int>> list = {out};
    all_reduce(list, pair);
    all_reduce_async(list, pair).wait();
    CHECK(out == std::vector{48, 32});
    all_reduce(list, pair, coalesce_options{.chunk_bytes = 4});
    CHECK(out == std::vector{96, 64});
    const auto root_sum = reduce(mine, 0, pair);
    CHECK(root_sum == (pair.rank() == 0 ? std::optional(3) : std::nullopt));
    CHECK(reduce_async(mine, 1, pair).wait() == (pair.rank() == 1 ? std::optional(3) : std::nullopt));
    std::vector<int> part(1);
    reduce_scatter(std::vector{mine, 10 * mine}, part, pair);
    CHECK(part[0] == (pair.rank() == 0 ? 3 : 30));
    CHECK(scan(mine, pair) == (pair.rank() == 0 ? 1 : 3));
    CHECK(exclusive_scan(mine, pair) == (pair.rank() == 0 ? 0 : 1));
  });
}

TEST_CASE("dictionaries take the group, or the root, in the place of what stands before it") {
  in_pairs([](const process_group& pair, int number) {
    const double mean = 1 + 4.0 * number;  // of this pair
    const std::map<std::string, double> mine = {{"loss", mean - 1 + 2.0 * pair.rank()}};
    const auto loss_of = [](const std::map<std::string, double>& result) { return result.at("loss"); };
    CHECK(loss_of(all_reduce_dict(mine, pair)) == mean);  // still an average
    CHECK(loss_of(all_reduce_dict_async(mine, pair).wait()) == mean);
    CHECK(loss_of(all_reduce_dict(mine, reduce_op::sum, pair)) == 2 * mean);
    const double at_first = pair.rank() == 0 ? mean : loss_of(mine);
    const double at_second = pair.rank() == 1 ? mean : loss_of(mine);
    CHECK(loss_of(reduce_dict(mine, pair)) == at_first);
    CHECK(loss_of(reduce_dict(mine, 1, pair)) == at_second);
    CHECK(loss_of(reduce_dict(mine, reduce_op::average, pair)) == at_first);
    CHECK(loss_of(reduce_dict_async(mine, 1, pair).wait()) == at_second);
  });
}

TEST_CASE("rooted operations take the group in the place of their root") {
  in_pairs([](const process_group& pair, int number) {
    const bool is_root = pair.rank() == 0;
    const std::string roots = "root of pair " + std::to_string(number);
    std::string text = is_root ? roots : "";
    broadcast(text, pair);
    CHECK(text == roots);
    std::array<int, 1> value = {pair.rank() + 5 + number};
    broadcast(std::span(value), pair);
    CHECK(value[0] == 5 + number);
    text = is_root ? roots + '!' : "";
    broadcast_async(text, pair).wait();
    CHECK(text == roots + '!');
    CHECK(gather(pair.rank(), pair).size() == (is_root ? 2 : 0));
    CHECK(gather_async(pair.rank(), pair).wait().size() == (is_root ? 2 : 0));
    std::vector<int> all(is_root ? 2 : 0);
    gather(value, all, pair);
    CHECK(all == (is_root ? std::vector{5 + number, 5 + number} : std::vector<int>()));
    const std::vector<int> list = is_root ? std::vector{7 + number, 8 + number} : std::vector<int>();
    CHECK(scatter(list, pair) == 7 + number + pair.rank());
    CHECK(scatter_async(list, pair).wait() == 7 + number + pair.rank());
    std::vector<std::string> texts = {is_root ? roots : ""};
    broadcast_object_list(texts, pair);
    CHECK(texts[0] == roots);
    const std::vector<int> parts(2, number);
    CHECK(collect_results(parts, 3, pair) == (is_root ? std::vector<int>(3, number) : std::vector<int>()));
  });
}

TEST_CASE("parameters take the group in the place of their operation") {
  in_pairs([](const process_group& pair, int number) {
    std::vector<float> gradient = {static_cast<float>(4 * number + 2 * pair.rank())};
    const std::vector<ddp_parameter> parameters = {named_parameter("w", gradient, gradient)};
    all_reduce_params(parameters, pair);
    CHECK(gradient[0] == static_cast<float>(4 * number + 1));
  });
}

TEST_CASE("messages take a tag and a group in any order, and each without the other") {
  run_noted(2, {}, [](const process_group& world) {
    const process_group group = world.split(0, -world.rank());  // the same ranks, the other way round
    const int other = 1 - group.rank();
    const int other_of_world = 1 - world.rank();
    std::vector<int> got(1);
    const std::vector<int> sent = {world.rank() + 20};
    if (world.rank() == 0) {
      send(1, other, 7, group);
      send(2, other, group, 7U);
      send(3, other, group);
      send(4, other_of_world, 7);
      send(std::span(sent), other, 8, std::cref(group));
      isend(std::span(sent), other, std::size_t{9}, group).wait();
    } else {
      CHECK(probe(other, 7, group).tag == 7);
      CHECK(recv<int>(other, 7, group) == 1);
      CHECK(recv<int>(any_source, group, 7).value == 2);
      CHECK(recv<int>(other, any_tag, group).value == 3);
      CHECK(recv<int>(other_of_world, 7) == 4);
      recv(std::span(got), other, 8, group);
      CHECK(got[0] == 20);
      CHECK(irecv(std::span(got), other, any_tag, group).wait().tag == 9);
      CHECK(!try_probe(other, group, 9));
    }
    CHECK(send_receive(world.rank(), other, other, 3, group) == other_of_world);
    CHECK_CONTAINS(error_of<usage_error>([&] { send(1, other, 3, 4); }).what(), "two tags");
    CHECK_CONTAINS(error_of<usage_error>([&] { send(1, other, group, world); }).what(), "two groups");
    CHECK_CONTAINS(error_of<usage_error>([&] { send(1, other, std::size_t{1} << 32, group); }).what(), "tag");
    check_usable(group);
  });
}

TEST_CASE("two groups in one call are refused") {
  run_noted(2, {}, [](const process_group& world) {
    const process_group one = world.split(0);
    const process_group other = world.split(0);
    const usage_error problem = error_of<usage_error>([&] { (void)all_reduce(1, one, other); });
    CHECK_CONTAINS(problem.what(), "two groups");
    CHECK_CONTAINS(problem.what(), "optional_arguments_test.cpp");
    CHECK_THROWS_AS((void)all_reduce(1, one, world), usage_error);
    CHECK(all_reduce(1, one, one) == 2);
    check_usable(one);
    check_usable(other);
  });
}

}  // namespace
