// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <span>
#include <string>
#include <vector>

#include <hfcomm/collectives/message_batch.hpp>
#include <hfcomm/collectives/recv.hpp>
#include <hfcomm/collectives/send.hpp>
#include <hfcomm/collectives/send_receive.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// The neighbours on a line whose ends have none.
int left_of(const process_group& world) { return world.rank() > 0 ? world.rank() - 1 : null_rank; }
int right_of(const process_group& world) { return world.rank() + 1 < world.size() ? world.rank() + 1 : null_rank; }

TEST_CASE("null_rank: the ranks of a line shift values without a branch at its ends") {
  at_every_size([](const process_group& world) {
    const int rank = world.rank();
    const bool first = rank == 0;
    for (const std::size_t count : each_of(1, 50'000)) {
      const std::vector<int> mine(count, rank);
      std::vector<int> theirs(count, -7);
      send_receive(std::span(mine), right_of(world), std::span(theirs), left_of(world), world);
      CHECK((theirs == std::vector<int>(count, first ? -7 : rank - 1)));
    }
    const std::string text = "rank " + std::to_string(rank);
    const auto from_left = send_receive(text, right_of(world), left_of(world), world);
    CHECK(from_left == (first ? "" : "rank " + std::to_string(rank - 1)));
    check_usable(world);
  });
}

TEST_CASE("null_rank: a batch exchanges halos on a line, and leaves what nobody sends as it is") {
  at_every_size([](const process_group& world) {
    const int rank = world.rank();
    const int left = left_of(world);
    const int right = right_of(world);
    std::vector<double> cells{-1.0, static_cast<double>(rank), static_cast<double>(rank), -1.0};
    const std::span all(cells);
    std::string name = "nobody";
    message_batch batch(world);
    batch.send(all.subspan(1, 1), left).recv(all.first(1), left);
    batch.send(all.subspan(2, 1), right).recv(all.last(1), right);
    batch.send(std::to_string(rank), right, 1).recv(name, left, 1);
    batch.run();
    CHECK(cells.front() == (left == null_rank ? -1.0 : static_cast<double>(left)));
    CHECK(cells.back() == (right == null_rank ? -1.0 : static_cast<double>(right)));
    CHECK(name == (left == null_rank ? "nobody" : std::to_string(left)));
    batch.send(1, null_rank).recv(name, null_rank).run();  // nothing but these
    check_usable(world);
  });
}

TEST_CASE("null_rank: plain and started messages end at once") {
  at_every_size([](const process_group& world) {
    std::vector<int> data{1, 2, 3};
    send(5, null_rank, world);
    send(std::span(data), null_rank, world);
    CHECK(recv<int>(null_rank, world) == 0);
    CHECK(recv<std::string>(null_rank, world).empty());
    recv(std::span(data), null_rank, world);
    auto sent = isend(std::string("text"), null_rank, world);
    auto elements_sent = isend(std::span(data), null_rank, world);
    auto text = irecv<std::string>(null_rank, world);
    auto elements = irecv(std::span(data), null_rank, world);
    CHECK(sent.done());
    CHECK(elements_sent.done());
    CHECK(text.done());
    CHECK(elements.done());
    sent.wait();
    elements_sent.wait();
    CHECK(text.wait().empty());
    elements.wait();
    CHECK((data == std::vector<int>{1, 2, 3}));
    check_usable(world);
  });
}

TEST_CASE("null_rank: its messages have the checks of all others") {
  at_every_size([](const process_group& world) {
    std::array<int, 3> data{};
    const std::span span(data);
    const std::span<int> nowhere(static_cast<int*>(nullptr), 3);
    CHECK_CONTAINS(error_of<usage_error>([&] { send(1, null_rank, world, -1); }).what(), "tag -1 is negative");
    CHECK_CONTAINS(error_of<usage_error>([&] { recv(nowhere, null_rank, world); }).what(), "is at address 0");
    CHECK_CONTAINS(error_of<usage_error>([&] { send(nowhere, null_rank, world); }).what(), "is at address 0");
    CHECK_CONTAINS(error_of<usage_error>([&] { send_receive(span, null_rank, span, null_rank, world); }).what(),
                   "overlaps");
    CHECK_CONTAINS(error_of<usage_error>([&] { broadcast(data, null_rank, world); }).what(), "is not a rank");
    check_usable(world);
  });
}

}  // namespace
