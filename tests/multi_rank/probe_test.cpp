// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/collectives/message_batch.hpp>
#include <hfcomm/collectives/probe.hpp>
#include <hfcomm/collectives/recv.hpp>
#include <hfcomm/collectives/send.hpp>
#include <hfcomm/group/wait.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

TEST_CASE("any_tag: a rank's messages come in the order in which it sent them, with their tags") {
  at_every_size(
      [](const process_group& world) {
        constexpr int count = 60;
        const auto tag_of = [](int number) { return number * 7 % 5; };
        if (world.rank() != 0) {
          for (int number = 0; number < count; ++number) {
            send(text_of(number, as_index(number) * 3), 0, world, tag_of(number));
          }
          const std::vector<int> numbers(20'000, world.rank());
          send(std::span(numbers), 0, world, 9);
        } else {
          for (int source = 1; source < world.size(); ++source) {
            for (int number = 0; number < count; ++number) {
              const auto [text, from, tag] = recv<std::string>(source, world, any_tag);
              CHECK((text == text_of(number, as_index(number) * 3)));
              CHECK(from == source);
              CHECK(tag == tag_of(number));
            }
            std::vector<int> numbers(20'000);
            const auto info = recv(std::span(numbers), source, world, any_tag);
            CHECK((info == message_info{source, 9, 80'000}));
            CHECK((numbers == std::vector<int>(20'000, source)));
          }
        }
        check_usable(world);
      },
      2);
}

TEST_CASE("any_tag: with any_source every message comes once") {
  at_every_size(
      [](const process_group& world) {
        if (world.rank() != 0) {
          for (int number = 0; number < 10; ++number) {
            send(world.rank() * 100 + number, 0, world, number);
          }
        } else {
          std::vector<int> next(as_index(world.size()), 0);
          for (int number = 0; number < 10 * (world.size() - 1); ++number) {
            const auto [value, source, tag] = recv<int>(any_source, world, any_tag);
            CHECK(value == source * 100 + tag);
            CHECK(tag == next[as_index(source)]++);
          }
        }
        check_usable(world);
      },
      2);
}

TEST_CASE("any_tag: started receives take the messages in the order of their calls") {
  for (const bool receiver_first : {false, true}) {
    run_noted(2, {}, [&](const process_group& world) {
      constexpr int count = 200;
      const bool sends = world.rank() == 0;
      if (sends == receiver_first) {
        barrier(world);
      }
      std::vector<work<void>> going;
      std::vector<work<received_with_tag<int>>> any;
      std::vector<work<int>> odd;
      std::vector<int> last(2);
      std::optional<work<message_info>> elements;
      if (sends) {
        for (int number = 0; number < count; ++number) {
          going.push_back(isend(number, 1, world, number % 2));
        }
        going.push_back(isend(std::span(last), 1, world, 5));
      } else {
        // The first of each two receives takes the first message that is left, an even one; the next wants tag 1.
        for (int number = 0; number < count; number += 2) {
          any.push_back(irecv<int>(0, world, any_tag));
          odd.push_back(irecv<int>(0, world, 1));
        }
        elements = irecv(std::span(last), any_source, world, any_tag);
      }
      if (sends != receiver_first) {
        barrier(world);
      }
      for (auto& one : going) {
        one.wait();
      }
      if (!sends) {
        for (int number = 0; number < count; number += 2) {
          const auto [value, source, tag] = any[as_index(number / 2)].wait();
          CHECK(value == number);
          CHECK(source == 0);
          CHECK(tag == 0);
          CHECK(odd[as_index(number / 2)].wait() == number + 1);
        }
        CHECK((elements->wait() == message_info{0, 5, 8}));
      }
      check_usable(world);
    });
  }
}

TEST_CASE("any_tag: an earlier receive of any tag gets the earliest message, although a later one found another") {
  // The receives are looked through one after another, here all the time, because messages of rank 2 arrive. Those of
  // rank 0 often come between the looks of `any` and of `two`.
  run_noted(3, {}, [](const process_group& world) {
    constexpr int between = 60;
    for (int round = 0; round < 200; ++round) {
      if (world.rank() == 1) {
        auto any = irecv<int>(0, world, any_tag);
        std::vector<work<int>> others;
        for (int number = 0; number < between; ++number) {
          others.push_back(irecv<int>(2, world, 3));
        }
        auto two = irecv<int>(0, world, 2);
        barrier(world);
        for (int number = 0; number < between; ++number) {
          CHECK(others[as_index(number)].wait() == number);
        }
        CHECK(any.wait().value == round);
        CHECK(two.wait() == -round);
      } else if (world.rank() == 0) {
        barrier(world);
        const auto begin = std::chrono::steady_clock::now();
        while (std::chrono::steady_clock::now() < begin + std::chrono::microseconds(round)) {
        }
        message_batch(world).send(round, 1, 1).send(-round, 1, 2).run();
      } else {
        barrier(world);
        for (int number = 0; number < between; ++number) {
          send(number, 1, world, 3);
        }
      }
    }
  });
}

TEST_CASE("any_tag: a message of another type is a mismatch_error on both sides") {
  run_noted(2, {}, [](const process_group& world) {
    if (world.rank() == 0) {
      CHECK_CONTAINS(error_of<mismatch_error>([&] { send(1.5, 1, world, 4); }).what(), "any tag");
    } else {
      const auto problem = error_of<mismatch_error>([&] { (void)recv<int>(0, world, any_tag); });
      CHECK_CONTAINS(problem.what(), "send(an object of type double, to rank 1, tag 4)");
      CHECK_CONTAINS(problem.what(), "recv(an object of type int, from rank 0, any tag)");
    }
    check_usable(world);
  });
}

TEST_CASE("probe: it tells the source, tag and length of a message, which stays") {
  at_every_size(
      [](const process_group& world) {
        if (world.rank() != 0) {
          const std::vector<double> numbers(as_index(world.rank()) * 10'000, world.rank());
          send(std::span(numbers), 0, world, world.rank());
        } else {
          for (int turn = 1; turn < world.size(); ++turn) {
            const auto info = probe(any_source, world, any_tag);
            CHECK((probe(info.source, world, info.tag) == info));
            CHECK(info.tag == info.source);
            CHECK(info.count<double>() == as_index(info.source) * 10'000);
            std::vector<double> numbers(info.count<double>());
            recv(std::span(numbers), info.source, world, info.tag);
            CHECK((numbers == std::vector<double>(numbers.size(), info.source)));
          }
        }
        check_usable(world);
      },
      2);
}

/// The tag and the size of a rank's message; every rank knows all of them.
int kind_of(int rank, int number) { return (rank * 5 + number * 7 + number / 11) % 3; }
std::size_t size_of_message(int rank, int number) {
  return number % 19 == 3 ? 20'000 + as_index(rank * 1'000 + number) : as_index((rank * 31 + number * 17) % 90);
}

TEST_CASE("probe: a server takes messages of every kind and length, each sender's in their order") {
  at_every_size(
      [](const process_group& world) {
        constexpr int count = 150;
        const int rank = world.rank();
        if (rank != 0) {
          std::vector<work<void>> going;
          std::vector<std::vector<int>> buffers;
          buffers.reserve(count);
          for (int number = 0; number < count; ++number) {
            const int kind = kind_of(rank, number);
            const std::size_t size = size_of_message(rank, number);
            if (kind == 0) {
              going.push_back(isend(text_of(number, size), 0, world, kind));
            } else {
              buffers.emplace_back(size, number);
              going.push_back(kind == 1 ? isend(std::span(buffers.back()), 0, world, kind)
                                        : isend(buffers.back(), 0, world, kind));
            }
          }
          wait_all(going);
          return;
        }
        std::vector<int> next(as_index(world.size()), 0);
        for (int turn = 0; turn < count * (world.size() - 1); ++turn) {
          std::optional<message_info> info;
          if (turn % 3 == 0) {
            wait_until([&] { return (info = try_probe(any_source, world, any_tag)).has_value(); });
          } else {
            info = probe(any_source, world, any_tag);
          }
          const int number = next[as_index(info->source)]++;
          const std::size_t size = size_of_message(info->source, number);
          REQUIRE(info->tag == kind_of(info->source, number));
          if (info->tag == 0) {
            CHECK((recv<std::string>(info->source, world, 0) == text_of(number, size)));
          } else if (info->tag == 1) {
            REQUIRE(info->count<int>() == size);
            std::vector<int> buffer(info->count<int>());
            recv(std::span(buffer), info->source, world, 1);
            CHECK((buffer == std::vector<int>(size, number)));
          } else {
            CHECK((recv<std::vector<int>>(info->source, world, any_tag).value == std::vector<int>(size, number)));
          }
        }
        CHECK_FALSE(try_probe(any_source, world, any_tag));
      },
      2);
}

TEST_CASE("try_probe: it finds nothing before the message is sent") {
  run_noted(2, {}, [](const process_group& world) {
    if (world.rank() == 0) {
      barrier(world);
      send(std::string("text"), 1, world, 3);
    } else {
      CHECK_FALSE(try_probe(0, world, 3));
      CHECK_FALSE(try_probe(any_source, world, any_tag));
      barrier(world);
      std::optional<message_info> info;
      wait_until([&] { return (info = try_probe(any_source, world, any_tag)).has_value(); });
      CHECK(info->source == 0);
      CHECK(info->tag == 3);
      CHECK_FALSE(try_probe(0, world));  // another tag
      CHECK(try_probe(0, world, 3) == info);
      CHECK(recv<std::string>(0, world, 3) == "text");
      CHECK_FALSE(try_probe(0, world, 3));
    }
    check_usable(world);
  });
}

TEST_CASE("probe: it passes over a message that an earlier irecv wants") {
  for (int round = 0; round < 50; ++round) {
    run_noted(2, {}, [](const process_group& world) {
      if (world.rank() == 0) {
        auto first = isend(1, 1, world);
        auto second = isend(std::string("second"), 1, world);
        first.wait();
        second.wait();
      } else {
        auto one = irecv<int>(0, world);
        const auto info = probe(0, world);
        CHECK(info.bytes > 4);
        CHECK(recv<std::string>(0, world) == "second");
        CHECK(one.wait() == 1);
      }
    });
  }
}

struct unsendable {
  int number = 0;

  template <class Archive>
  void save(Archive& /*archive*/) const {
    throw std::domain_error("not this one");
  }
  template <class Archive>
  void load(Archive& archive) {
    archive(number);
  }
};

TEST_CASE("probe: a failure of the sender is found, and recv throws it") {
  run_noted(2, {}, [](const process_group& world) {
    if (world.rank() == 0) {
      (void)error_of<std::domain_error>([&] { send(unsendable{}, 1, world, 6); });
    } else {
      const auto info = probe(any_source, world, any_tag);
      CHECK(info.tag == 6);
      CHECK_CONTAINS(error_of<peer_error>([&] { (void)recv<unsendable>(0, world, 6); }).what(), "not this one");
    }
    check_usable(world);
  });
}

TEST_CASE("probe: from nobody it returns at once, and in a group of one try_probe sees messages to oneself") {
  at_every_size([](const process_group& world) {
    CHECK((probe(null_rank, world, 7) == message_info{}));
    CHECK((try_probe(null_rank, world) == message_info{}));
    const auto nobody = recv<int>(null_rank, world, any_tag);
    CHECK(nobody.source == null_rank);
    auto sent = isend(5, world.rank(), world, 2);
    std::optional<message_info> info;
    wait_until([&] { return (info = try_probe(any_source, world, any_tag)).has_value(); });
    CHECK(info->source == world.rank());
    CHECK(info->tag == 2);
    CHECK(irecv<int>(world.rank(), world, any_tag).wait().value == 5);
    sent.wait();
    check_usable(world);
  });
}

TEST_CASE("probe: bad arguments are a usage_error") {
  at_every_size([](const process_group& world) {
    for (const int wrong : {world.size(), -1}) {
      const std::string text = "source " + std::to_string(wrong) + " is not a rank of this group of ";
      CHECK_CONTAINS(error_of<usage_error>([&] { (void)probe(wrong, world); }).what(), text);
      CHECK_CONTAINS(error_of<usage_error>([&] { (void)try_probe(wrong, world, any_tag); }).what(), text);
      CHECK_CONTAINS(error_of<usage_error>([&] { (void)recv<int>(wrong, world, any_tag); }).what(), text);
    }
    CHECK_CONTAINS(error_of<usage_error>([&] { (void)probe(any_source, world, -3); }).what(), "tag -3 is negative");
    CHECK_CONTAINS(error_of<usage_error>([&] { (void)probe(world.rank(), world); }).what(), "oneself");
    CHECK_CONTAINS(error_of<usage_error>([&] { (void)recv<int>(world.rank(), world, any_tag); }).what(), "oneself");
    if (world.size() == 1) {
      CHECK_CONTAINS(error_of<usage_error>([&] { (void)probe(any_source, world); }).what(), "there is no other rank");
    }
    check_usable(world);
  });
}

TEST_CASE("probe: a source that never sends is a timeout_error, one that has left a peer_error") {
  run_noted(2, {}, [](const process_group& world) {
    const auto group = world.split(0).with_timeout(std::chrono::milliseconds(200));
    if (world.rank() == 1) {
      const auto problem = error_of<timeout_error>([&] { (void)probe(0, group, any_tag); });
      CHECK_CONTAINS(problem.what(), "rank 0 did not send the message of probe #1");
      CHECK_CONTAINS(problem.what(), "with any tag");
      CHECK_CONTAINS(error_of<timeout_error>([&] { (void)try_probe(0, group); }).what(), "did not send");
    }
    barrier(world);
  });
  for (const bool blocking : {true, false}) {
    run_noted(2, {}, [&](const process_group& world) {
      auto group = std::make_optional(world.split(0));
      if (world.rank() == 0) {
        group.reset();
        barrier(world);
      } else {
        barrier(world);
        CHECK_FALSE(try_probe(any_source, *group));
        const auto look = [&] {
          wait_until([&] { return blocking ? probe(0, *group).bytes != 0 : try_probe(0, *group).has_value(); });
        };
        CHECK(error_of<peer_error>(look).peer() == 0);
      }
    });
  }
}

}  // namespace
