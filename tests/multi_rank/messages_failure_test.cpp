// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <array>
#include <chrono>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <hfcomm/collectives/all_gather.hpp>
#include <hfcomm/collectives/broadcast.hpp>
#include <hfcomm/collectives/message_batch.hpp>
#include <hfcomm/collectives/recv.hpp>
#include <hfcomm/collectives/send.hpp>
#include <hfcomm/collectives/send_receive.hpp>

// One rank cannot make its part of messages that go in both directions. Nobody may wait for it until a deadline, which
// is a minute here.
namespace {

using namespace hfcomm;
using namespace multi_rank;

struct unsaveable {
  bool throws = false;

  template <class Archive>
  void save(Archive& archive) const {
    if (throws) {
      throw std::domain_error("the cupboard is bare");
    }
    archive(throws);
  }
  template <class Archive>
  void load(Archive& archive) {
    archive(throws);
  }
};

[[nodiscard]] int next_of(const process_group& world) { return (world.rank() + 1) % world.size(); }
[[nodiscard]] int previous_of(const process_group& world) { return (world.rank() + world.size() - 1) % world.size(); }

/// Rank 0 must get an `Error`, both its neighbours in the ring a peer_error with `text`, and the rest succeed.
template <class Error, class Call>
void check_ring(const process_group& world, const std::string& text, Call call) {
  if (world.rank() == 0) {
    CHECK_CONTAINS(error_of<Error>(call).what(), text);
  } else if (next_of(world) == 0 || previous_of(world) == 0) {
    const auto problem = error_of<peer_error>(call);
    CHECK(problem.peer() == 0);
    CHECK_FALSE(problem.fatal());
    CHECK_CONTAINS(problem.what(), text);
    CHECK_CONTAINS(problem.what(), "messages_failure_test.cpp:");
  } else {
    call();
  }
  check_usable(world);
}

TEST_CASE("send_receive: when an object's save throws, both peers get its text, and the group goes on") {
  at_every_size(
      [](const process_group& world) {
        for (int round = 0; round < 3; ++round) {
          check_ring<std::domain_error>(world, "the cupboard is bare", [&] {
            (void)send_receive(unsaveable{world.rank() == 0}, next_of(world), previous_of(world), world);
          });
          CHECK(send_receive(world.rank(), next_of(world), previous_of(world), world) == previous_of(world));
        }
      },
      2);
}

TEST_CASE("send_receive: when every rank's object throws, no notice is left behind for later messages") {
  at_every_size([](const process_group& world) {
    CHECK_THROWS_AS((void)send_receive(unsaveable{true}, next_of(world), previous_of(world), world), std::domain_error);
    barrier(world);
    CHECK(send_receive(world.rank(), next_of(world), previous_of(world), world) == previous_of(world));
    check_usable(world);
  });
}

TEST_CASE("send_receive: an impossible destination or tag on every rank leaves no notice behind either") {
  at_every_size([](const process_group& world) {
    CHECK_THROWS_AS((void)send_receive(1, world.size(), previous_of(world), world), usage_error);
    CHECK_THROWS_AS((void)send_receive(1, next_of(world), previous_of(world), world, -1), usage_error);
    barrier(world);
    CHECK(send_receive(world.rank(), next_of(world), previous_of(world), world) == previous_of(world));
    check_usable(world);
  });
}

TEST_CASE("send_receive: a buffer at address 0, to send or to receive, is an error on both peers") {
  at_every_size(
      [](const process_group& world) {
        std::array<int, 3> data{};
        const std::span<int> nowhere(static_cast<int*>(nullptr), data.size());
        for (const bool sends : {true, false}) {
          check_ring<usage_error>(world, "a buffer of 3 elements is at address 0", [&] {
            std::array<int, 3> received{};
            send_receive(world.rank() == 0 && sends ? nowhere : std::span(data), next_of(world),
                         world.rank() == 0 && !sends ? nowhere : std::span(received), previous_of(world), world);
          });
        }
      },
      2);
}

TEST_CASE("message_batch: when an object's save throws, the receiver gets its text, and the other messages arrive") {
  at_every_size(
      [](const process_group& world) {
        const std::vector<int> edge(100, world.rank());
        std::vector<int> halo(edge.size(), -1);
        unsaveable object;
        message_batch batch(world);
        batch.send(unsaveable{world.rank() == 0}, next_of(world)).recv(object, previous_of(world));
        batch.send(std::span(edge), next_of(world), 1).recv(std::span(halo), previous_of(world), 1);
        if (world.rank() == 0) {
          CHECK_CONTAINS(error_of<std::domain_error>([&] { batch.run(); }).what(), "the cupboard is bare");
        } else if (previous_of(world) == 0) {
          CHECK_CONTAINS(error_of<peer_error>([&] { batch.run(); }).what(), "the cupboard is bare");
        } else {
          batch.run();
        }
        CHECK(halo == std::vector<int>(edge.size(), previous_of(world)));
        check_usable(world);
      },
      2);
}

TEST_CASE("message_batch: the text of an object whose save throws keeps its place among the messages") {
  at_every_size(
      [](const process_group& world) {
        message_batch batch(world);
        batch.send(1, next_of(world)).send(unsaveable{true}, next_of(world)).send(3, next_of(world));
        auto first = irecv<int>(previous_of(world), world);
        auto failed = irecv<unsaveable>(previous_of(world), world);
        auto last = irecv<int>(previous_of(world), world);
        CHECK_THROWS_AS(batch.run(), std::domain_error);
        CHECK_CONTAINS(error_of<peer_error>([&] { (void)failed.wait(); }).what(), "the cupboard is bare");
        CHECK(first.wait() == 1);
        CHECK(last.wait() == 3);
        check_usable(world);
      },
      2);
}

TEST_CASE("message_batch: the peers of a batch that is destroyed before it has run get an error") {
  at_every_size(
      [](const process_group& world) {
        const std::vector<int> edge(100, world.rank());
        std::vector<int> halo(edge.size(), -1);
        const auto call = [&] {
          message_batch batch(world);
          batch.send(std::span(edge), next_of(world), 1).recv(std::span(halo), previous_of(world), 1);
          if (world.rank() == 0) {
            throw std::domain_error("something else: its message_batch was destroyed before it had run");
          }
          batch.run();
        };
        check_ring<std::domain_error>(world, "its message_batch was destroyed before it had run", call);
      },
      2);
}

TEST_CASE("messages: a ring of ranks that all send first is told so at its deadline") {
  run_noted(3, {}, [](const process_group& world) {
    const auto group = world.with_timeout(std::chrono::milliseconds(200));
    barrier(group);
    const auto problem = error_of<timeout_error>([&] {
      send(world.rank(), (world.rank() + 1) % 3, group);
      (void)recv<int>((world.rank() + 2) % 3, group);
    });
    CHECK_CONTAINS(problem.what(), "Ranks that all send first wait for each other: use send_receive, or isend");
  });
}

TEST_CASE("messages: a container on one side and a view on the other are told what to do") {
  run_noted(2, {}, [](const process_group& group) {
    std::vector<double> data(4);
    const auto problem = error_of<mismatch_error>([&] {
      if (group.rank() == 0) {
        send(data, 1, group);
      } else {
        recv(std::span(data), 0, group);
      }
    });
    CHECK_CONTAINS(problem.what(), "wrap a container in std::span in both calls, or in none");
    const auto again = error_of<mismatch_error>([&] {
      if (group.rank() == 0) {
        broadcast(data, 0, group);
      } else {
        broadcast(std::span(data), 0, group);
      }
    });
    CHECK_CONTAINS(again.what(), "wrap a container in std::span in both calls, or in none");
  });
}

TEST_CASE("messages: two ranks that both send first are told so at their deadline") {
  run_noted(2, {}, [](const process_group& world) {
    const auto group = world.split(0).with_timeout(std::chrono::milliseconds(200));
    const auto problem = error_of<timeout_error>([&] { send(world.rank(), 1 - world.rank(), group); });
    CHECK_CONTAINS(problem.what(), " offers send(an object of type int, to rank ");
    CHECK_CONTAINS(problem.what(), "Two ranks that both send first wait for each other: use send_receive, or isend");
    CHECK_CONTAINS(problem.what(), "last called send(an object of type int, to rank ");
    check_usable(world);
  });
}

TEST_CASE("error texts: the last message counts as a rank's last call, too") {
  run_noted(2, {}, [](const process_group& world) {
    const auto group = world.split(0).with_timeout(std::chrono::milliseconds(200));
    if (world.rank() == 0) {
      for (int i = 0; i < 100; ++i) {
        send(i, 1, group);
      }
      barrier(world);
    } else {
      for (int i = 0; i < 100; ++i) {
        CHECK(recv<int>(0, group) == i);
      }
      const auto problem = error_of<timeout_error>([&] { barrier(group); });
      CHECK_CONTAINS(problem.what(), "last called send(an object of type int, to rank 1)");
      CHECK_CONTAINS(problem.what(), " as #100");
      barrier(world);
    }
    check_usable(world);
  });
}

struct nothing {
  std::vector<int> not_serialized{};
  template <class Archive>
  void serialize(Archive&) {}
};

TEST_CASE("encode: more elements without bytes than a message may have are a usage_error on the rank that sends them") {
  run_noted(2, {}, [](const process_group& world) {
    const auto call = [&] { return all_gather(std::vector<nothing>(world.rank() == 0 ? 65'537 : 1), world); };
    if (world.rank() == 0) {
      CHECK_CONTAINS(error_of<usage_error>(call).what(), "serializes nothing");
    } else {
      CHECK_CONTAINS(error_of<peer_error>(call).what(), "serializes nothing");
    }
    CHECK(all_gather(std::vector<nothing>(65'536), world)[0].size() == 65'536);
    check_usable(world);
  });
}

}  // namespace
