// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <algorithm>
#include <atomic>
#include <optional>

namespace {

using namespace hfcomm;
using namespace multi_rank;

TEST_CASE("split: each color is one group, ordered by key, then by rank") {
  at_every_size([](const process_group& world) {
    const auto parity = world.split(world.rank() % 2);
    CHECK(parity.size() == (world.size() + (world.rank() % 2 == 0 ? 1 : 0)) / 2);
    CHECK(parity.rank() == world.rank() / 2);
    const auto turned = world.split(0, -world.rank());
    CHECK(turned.size() == world.size());
    CHECK(turned.rank() == world.size() - 1 - world.rank());
    // Equal keys: by rank. Colors need not be dense.
    const auto same = world.split(1'000'000, world.rank() / 2 * 0 - 5);
    CHECK(same.rank() == world.rank());
    const auto alone = world.split(world.rank());
    CHECK(alone.size() == 1);
    CHECK(alone.rank() == 0);
    check_usable(parity);
    check_usable(turned);
    check_usable(same);
    check_usable(alone);
  });
}

TEST_CASE("split: a negative color is an error on every rank") {
  at_every_size([](const process_group& world) {
    const int odd = world.size() - 1;
    const auto call = [&] { (void)world.split(world.rank() == odd ? -1 : 0); };
    if (world.rank() == odd) {
      CHECK_CONTAINS(error_of<usage_error>(call).what(), "color -1");
    } else {
      const auto problem = error_of<peer_error>(call);
      CHECK(problem.peer() == odd);
      CHECK_CONTAINS(problem.what(), "color -1");
    }
    check_usable(world);
    check_usable(world.split(0));
  });
}

TEST_CASE("subgroup: it has the listed ranks in their order, and is nullopt elsewhere") {
  at_every_size([](const process_group& world) {
    std::vector<int> order;
    for (int rank = world.size() - 1; rank >= 0; rank -= 2) {
      order.push_back(rank);
    }
    const auto some = world.subgroup(order);
    const auto place = std::find(order.begin(), order.end(), world.rank());
    REQUIRE(some.has_value() == (place != order.end()));
    if (some) {
      CHECK(some->rank() == place - order.begin());
      CHECK((all_gather(world.rank(), *some) == order));
    }
    const auto first = world.subgroup({0});
    CHECK(first.has_value() == (world.rank() == 0));
    check_usable(world);
  });
}

TEST_CASE("subgroup: an empty list, an unknown rank and a duplicate rank are usage_errors") {
  at_every_size([](const process_group& world) {
    const std::vector<std::vector<int>> wrong_lists{{}, {world.size()}, {0, -1}, {0, 0}};
    const std::vector<std::string> reasons{"empty", "rank " + std::to_string(world.size()), "rank -1", "named twice"};
    for (std::size_t index = 0; index < wrong_lists.size(); ++index) {
      const auto problem = error_of<usage_error>([&] { (void)world.subgroup(wrong_lists[index]); });
      CHECK_CONTAINS(problem.what(), reasons[index]);
      check_usable(world);
    }
  });
}

TEST_CASE("subgroup: different lists are a mismatch_error") {
  at_every_size(
      [](const process_group& world) {
        const std::vector<int> mine{0, world.rank() == 1 ? 0 : 1};
        if (world.rank() == 1) {
          CHECK_CONTAINS(error_of<usage_error>([&] { (void)world.subgroup(mine); }).what(), "named twice");
        } else {
          CHECK(error_of<peer_error>([&] { (void)world.subgroup(mine); }).peer() == 1);
        }
        line_note note;
        const auto problem = error_of<mismatch_error>([&] {
          if (world.rank() == 1) {
            (void)note(world).subgroup({1, 0});
          } else {
            (void)note(world).subgroup({0, 1});
          }
        });
        CHECK(problem.second_rank() == 1);
        const auto sites = all_gather(note.text());
        CHECK_CONTAINS(problem.what(), sites[0]);
        CHECK_CONTAINS(problem.what(), sites[1]);
        CHECK_CONTAINS(problem.what(), "for ranks 0 and 1");
        CHECK_CONTAINS(problem.what(), "for ranks 1 and 0");
        const auto pair = world.subgroup({0, 1});
        CHECK(pair.has_value() == (world.rank() < 2));
        if (pair) {
          check_usable(*pair);
        }
      },
      2);
}

TEST_CASE("groups: subgroups can be split again") {
  at_every_size([](const process_group& world) {
    process_group group = world;
    int level = 0;
    while (group.size() > 1) {
      group = group.split(group.rank() % 2, -group.rank());
      ++level;
      check_usable(group);
      const auto copy = group.subgroup({group.size() - 1});
      CHECK(copy.has_value() == (group.rank() == group.size() - 1));
    }
    CHECK(level <= 3);
    check_usable(world);
  });
}

TEST_CASE("groups: many can be made, and each ends with its last handle") {
  at_every_size([](const process_group& world) {
    for (int round = 0; round < 20; ++round) {
      const auto group = world.split(world.rank() % 3, round);
      const process_group copy = group;  // NOLINT(performance-unnecessary-copy-initialization): the copy is the test
      CHECK(copy == group);
      CHECK_FALSE(copy == world);
      CHECK(all_reduce(1, reduce_op::sum, copy) == group.size());
    }
  });
}

TEST_CASE("groups: a rank that dropped its handle is missing in that group only") {
  at_every_size(
      [](const process_group& world) {
        std::optional<process_group> group = world.split(0);
        barrier(*group);
        if (world.rank() == 1) {
          group.reset();
        } else {
          const auto problem = error_of<peer_error>([&] { barrier(*group); });
          CHECK(problem.peer() == 1);
          CHECK(problem.fatal());
          CHECK_CONTAINS(problem.what(), "left the group");
          CHECK(group->broken());
          CHECK(error_of<peer_error>([&] { (void)all_gather(1, *group); }).peer() == 1);
        }
        check_usable(world);
      },
      2);
}

TEST_CASE("with_timeout: it is the same group with another deadline, which its subgroups inherit") {
  at_every_size([](const process_group& world) {
    const auto patient = world.with_timeout(std::chrono::seconds(77));
    CHECK(patient == world);
    CHECK(patient.timeout() == std::chrono::seconds(77));
    CHECK(world.timeout() == std::chrono::seconds(60));
    CHECK(patient.split(0).timeout() == std::chrono::seconds(77));
    const auto all = patient.with_timeout(std::chrono::seconds(88)).subgroup({0});
    CHECK((!all || all->timeout() == std::chrono::seconds(88)));
    barrier(world.with_timeout(std::chrono::nanoseconds::zero()));
    barrier(world.with_timeout(-std::chrono::hours(1)));
    // Both handles count the same operations.
    barrier(patient);
    barrier(world);
    check_usable(patient);
  });
}

TEST_CASE("sequence_number: it counts the group's collectives as errors do") {
  at_every_size([](const process_group& world) {
    CHECK(process_group().sequence_number() == 0);
    const auto before = world.sequence_number();
    check_same_everywhere(before, world);
    const auto group = world.split(0);
    CHECK(group.sequence_number() == 0);
    barrier(group);
    CHECK(group.sequence_number() == 1);
    (void)send_receive(1, group.rank(), group.rank(), group);
    all_gather_async(1, group).wait();
    CHECK(group.with_tag(7).sequence_number() == 2);
    const auto problem = error_of<usage_error>([&] { broadcast(std::span<int>(), -1, group); });
    CHECK(problem.sequence() == 3);
    CHECK(group.sequence_number() == 3);
    check_usable(group);
  });
}

TEST_CASE("groups: different threads may use different groups at once") {
  at_every_size([](const process_group& world) {
    const auto first = world.split(0);
    const auto second = world.split(0, -world.rank());
    const auto work = [&](const process_group& group) {
      int wrong = 0;
      for (int round = 0; round < 100; ++round) {
        wrong += all_reduce(round + group.rank(), reduce_op::max, group) == round + group.size() - 1 ? 0 : 1;
        std::string text = text_of(group.rank(), 1000);
        broadcast(text, round % group.size(), group);
        wrong += text == text_of(round % group.size(), 1000) ? 0 : 1;
      }
      return wrong;
    };
    int wrong_there = -1;
    std::thread other([&] { wrong_there = work(second); });
    const int wrong_here = work(first);
    other.join();
    CHECK(wrong_here == 0);
    CHECK(wrong_there == 0);
  });
}

TEST_CASE("groups: two threads in one group are a usage_error in one of them, and the other completes") {
  for (const int ranks : {2, 3, 8}) {
    std::atomic<bool> refused{false};
    run_noted(ranks, {}, [&](const process_group& world) {
      for (int round = 0; round < 3; ++round) {
        refused = false;
        barrier();
        if (world.rank() != 0) {
          // The other ranks enter only when one thread of rank 0 has been refused: until then both are inside the
          // barrier.
          wait_until([&] { return refused.load(); });
          barrier();
        } else {
          std::atomic<int> passed{0};
          std::string text;
          const auto enter = [&] {
            try {
              barrier(world);
              ++passed;
            } catch (const usage_error& problem) {
              text = problem.what();
              refused = true;
            }
          };
          std::thread other(enter);
          enter();
          other.join();
          CHECK(passed.load() == 1);
          CHECK_CONTAINS(text, "another thread");
        }
        check_usable(world);
      }
    });
  }
}

}  // namespace
