// SPDX-License-Identifier: MIT
// Receives that are withdrawn.
#include "machines.hpp"

#include <atomic>
#include <span>
#include <thread>

namespace {

using namespace hfcomm;
using namespace multi_rank;
using namespace std::chrono_literals;

const std::vector<machine_layout> cancel_layouts{{2}, {3}, {1, 1}, {2, 2}};

void on_each_cancel_layout(function_ref<void(const process_group&)> rank_main) {
  for (const auto& machines : cancel_layouts) {
    on_machines(machines, rank_main);
  }
}

}  // namespace

TEST_CASE("cancel: a receive that no message has matched ends with cancelled_error, and the group stays usable") {
  on_each_cancel_layout([](const process_group& world) {
    const int other = (world.rank() + 1) % world.size();
    int element = 7;
    auto object = irecv<int>(other, world);
    auto elements = irecv(std::span(&element, 1), other, world);
    auto from_any = irecv<std::string>(any_source, world);
    auto with_any_tag = irecv<int>(any_source, world, any_tag);
    CHECK(object.cancel());
    CHECK(elements.cancel());
    CHECK(from_any.cancel());
    CHECK(with_any_tag.cancel());
    CHECK(object.done());
    CHECK_CONTAINS(error_of<cancelled_error>([&] { (void)object.wait(); }).what(), "cancelled");
    CHECK_CONTAINS(error_of<cancelled_error>([&] { (void)object.wait(); }).what(), "irecv");
    const auto problem = error_of<cancelled_error>([&] { elements.wait(); });
    CHECK(problem.rank() == world.rank());
    CHECK(contains(problem.where().file_name(), "messages_cancel_test.cpp"));
    CHECK(from_any.error() != nullptr);
    CHECK_FALSE(object.cancel());
    barrier(world);
    check_usable(world);
    CHECK(send_receive(world.rank(), other, (world.rank() + world.size() - 1) % world.size(), world) ==
          (world.rank() + world.size() - 1) % world.size());
    CHECK(element == 7);
  });
}

TEST_CASE("cancel: its error is not deferred where nobody reads it") {
  on_each_cancel_layout([](const process_group& world) {
    const int other = (world.rank() + 1) % world.size();
    {
      auto dropped = irecv<int>(other, world);
      auto then_dropped = irecv<int>(any_source, world).then([](const auto&) { FAIL_CHECK("called"); });
      CHECK(dropped.cancel());
      CHECK(then_dropped.cancel());
    }
    auto detached = irecv<int>(other, world);
    CHECK(detached.cancel());
    detached.detach();
    barrier(world);
    check_usable(world);
  });
}

TEST_CASE("cancel: a message that comes later is for the next receive") {
  on_each_cancel_layout([](const process_group& world) {
    const int next = (world.rank() + 1) % world.size();
    const int before = (world.rank() + world.size() - 1) % world.size();
    auto first = irecv<int>(before, world);
    auto second = irecv<int>(before, world);
    auto third = irecv<int>(before, world);
    CHECK(second.cancel());
    barrier(world);
    auto going = isend(1, next, world);
    auto also_going = isend(2, next, world);
    CHECK(first.wait() == 1);
    CHECK(third.wait() == 2);
    going.wait();
    also_going.wait();
    CHECK_FALSE(first.cancel());
    check_usable(world);
  });
}

TEST_CASE("cancel: a matched receive, a send and a collective are not withdrawn") {
  on_each_cancel_layout([](const process_group& world) {
    const int next = (world.rank() + 1) % world.size();
    const int before = (world.rank() + world.size() - 1) % world.size();
    auto came = irecv<int>(before, world);
    auto going = isend(world.rank(), next, world);
    CHECK_FALSE(going.cancel());
    CHECK(came.wait(1min));
    CHECK_FALSE(came.cancel());
    CHECK(came.wait() == before);
    going.wait();
    auto meeting = barrier_async(world);
    CHECK_FALSE(meeting.cancel());
    meeting.wait();
    auto nobody = irecv<int>(null_rank, world);
    CHECK_FALSE(nobody.cancel());
    CHECK(nobody.wait() == 0);
    check_usable(world);
  });
}

TEST_CASE("cancel: each message is received or its receive is cancelled, whatever comes first") {
  on_each_cancel_layout([](const process_group& world) {
    constexpr int turns = 300;
    const int next = (world.rank() + 1) % world.size();
    const int before = (world.rank() + world.size() - 1) % world.size();
    for (int turn = 0; turn < turns; ++turn) {
      auto going = isend(turn, next, world);
      auto came = irecv<int>(before, world);
      if (turn % 3 == 1) {
        std::this_thread::yield();
      }
      if (came.cancel()) {
        CHECK_THROWS_AS((void)came.wait(), cancelled_error);
        CHECK(recv<int>(before, world) == turn);
      } else {
        CHECK(came.wait() == turn);
      }
      going.wait();
    }
    check_usable(world);
  });
}

TEST_CASE("cancel: it ends the wait of another thread") {
  on_each_cancel_layout([](const process_group& world) {
    const auto group = world.split(0);
    auto never = irecv<int>((world.rank() + 1) % world.size(), group);
    std::thread other([&] {
      std::this_thread::sleep_for(50ms);
      CHECK(never.cancel());
    });
    CHECK_THROWS_AS((void)never.wait(), cancelled_error);
    other.join();
    check_usable(group);
  });
}

TEST_CASE("cancel: in a group of one, it works alike") {
  auto never = irecv<int>(0);
  CHECK(never.cancel());
  CHECK_THROWS_AS((void)never.wait(), cancelled_error);
  CHECK(send_receive(3, 0, 0) == 3);
}
