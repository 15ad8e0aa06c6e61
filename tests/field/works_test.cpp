// SPDX-License-Identifier: MIT
#include "../multi_rank/ranks.hpp"

#include <chrono>
#include <sstream>
#include <string>
#include <tuple>

#include <hfcomm/collectives/all_gather.hpp>
#include <hfcomm/collectives/barrier.hpp>
#include <hfcomm/collectives/recv.hpp>
#include <hfcomm/collectives/send.hpp>
#include <hfcomm/group/wait.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

TEST_CASE("works: those of several types are waited for in one call, which returns their values") {
  run_noted(2, {}, [](const process_group& world) {
    const int other = 1 - world.rank();
    auto sent = isend(world.rank() + 10, other, world, 1);
    auto number = irecv<int>(other, world, 1);
    auto text_sent = isend(text_of(world.rank(), 10), other, world, 2);
    auto text = irecv<std::string>(other, world, 2);
    auto [count, words] = wait_all(sent, number, text_sent, text);
    CHECK(count == other + 10);
    CHECK((words == text_of(other, 10)));
    wait_all(isend(1, other, world, 3), irecv<int>(other, world, 3));
    auto first = barrier_async(world);
    auto second = barrier_async(world);
    static_assert(std::is_void_v<decltype(wait_all(first, second))>);
    wait_all(first, second);
    check_usable(world);
  });
}

TEST_CASE("works: the first of several types that is done is told by its index") {
  run_noted(2, {}, [](const process_group& world) {
    if (world.rank() == 0) {
      auto never = irecv<std::string>(1, world, 5);
      auto number = irecv<int>(1, world, 6);
      CHECK(wait_any(never, number) == 1);
      CHECK(number.get() == 7);
      CHECK_FALSE(never.wait_for(std::chrono::milliseconds(5)));
      CHECK_FALSE(never.wait_until(std::chrono::steady_clock::now()));
      CHECK(never.cancel());
    } else {
      send(7, 0, world, 6);
    }
    check_usable(world);
  });
}

TEST_CASE("a group can be printed") {
  run_noted(2, {}, [](const process_group& group) {
    std::ostringstream text;
    text << group << ", " << process_group();
    CHECK(text.str() == "rank " + std::to_string(group.rank()) + " of 2 (shared_memory), rank 0 of 1 (self)");
  });
}

}  // namespace
