// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <span>

#include <hfcomm/collectives/message_batch.hpp>
#include <hfcomm/collectives/recv.hpp>
#include <hfcomm/collectives/send.hpp>
#include <hfcomm/collectives/send_receive.hpp>
#include <hfcomm/engine/transfer.hpp>
#include <hfcomm/group/detail/group_state.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// Every call must throw usage_error with `text` and the line of the call, and no other rank must notice.
template <class... Calls>
void check_refused(const std::string& text, Calls... calls) {
  const auto check = [&](auto& call) {
    const auto problem = error_of<usage_error>(call);
    CHECK_CONTAINS(problem.what(), text);
    CHECK_CONTAINS(problem.what(), "messages_misuse_test.cpp:");
  };
  (check(calls), ...);
}

TEST_CASE("messages: a destination or source that the group does not have is a usage_error") {
  at_every_size([](const process_group& world) {
    std::array<int, 2> data{};
    const std::span span(data);
    message_batch batch(world);
    for (const int wrong : {world.size(), world.size() + 7, -1, -2}) {
      const std::string rank = std::to_string(wrong) + " is not a rank of this group of ";
      const std::string to = "destination " + rank;
      const std::string from = "source " + rank;
      check_refused(
          to, [&] { send(1, wrong, world); }, [&] { send(span, wrong, world); },
          [&] { (void)isend(std::string(), wrong, world); }, [&] { (void)isend(span, wrong, world); },
          [&] { (void)send_receive(1, wrong, world.rank(), world); }, [&] { batch.send(1, wrong); },
          [&] { batch.send(span, wrong); });
      check_refused(
          from, [&] { (void)recv<int>(wrong, world); }, [&] { recv(span, wrong, world); },
          [&] { (void)irecv<int>(wrong, world); }, [&] { (void)irecv(span, wrong, world); },
          [&] { batch.recv(data[0], wrong); }, [&] { batch.recv(span, wrong); });
    }
    CHECK_CONTAINS(error_of<usage_error>([&] { (void)recv<int>(-1, world); }).what(), "any rank is any_source");
    batch.run();  // empty: nothing was added
    check_usable(world);
  });
}

TEST_CASE("messages: a negative tag is a usage_error") {
  at_every_size([](const process_group& world) {
    const int other = (world.rank() + 1) % world.size();
    std::array<int, 2> data{};
    const std::span span(data);
    message_batch batch(world);
    check_refused(
        "tag -3 is negative", [&] { send(1, other, world, -3); }, [&] { send(span, other, world, -3); },
        [&] { (void)recv<int>(other, world, -3); }, [&] { recv(span, other, world, -3); },
        [&] { (void)isend(1, other, world, -3); }, [&] { (void)irecv<int>(any_source, world, -3); },
        [&] { (void)send_receive(1, other, other, world, -3); }, [&] { batch.send(1, other, -3); },
        [&] { batch.recv(span, other, -3); });
    check_usable(world);
  });
}

struct throwing {
  template <class Archive>
  void serialize(Archive&) {
    throw std::runtime_error("must not be asked");
  }
};

TEST_CASE("messages: a blocking send or receive with oneself is a usage_error") {
  at_every_size([](const process_group& world) {
    const int me = world.rank();
    std::array<int, 2> data{};
    check_refused(
        "to or from oneself never ends", [&] { send(1, me, world); }, [&] { send(std::span(data), me, world); },
        [&] { send(throwing(), me, world); }, [&] { (void)recv<int>(me, world); },
        [&] { recv(std::span(data), me, world); });
    if (world.size() == 1) {
      check_refused(
          "there is no other rank", [&] { (void)recv<int>(any_source, world); },
          [&] { (void)recv(std::span(data), any_source, world); });
    }
    check_usable(world);
  });
}

TEST_CASE("messages: an invalid buffer is an error on the sender and on the receiver that waits for it") {
  run_noted(2, {}, [](const process_group& world) {
    const std::span<int> nowhere(static_cast<int*>(nullptr), 3);
    const std::span<int> endless(reinterpret_cast<int*>(64), ~std::size_t{0} / 2);
    std::array<int, 3> data{};
    if (world.rank() == 0) {
      check_refused("a buffer of 3 elements is at address 0", [&] { send(nowhere, 1, world); });
      check_refused("no memory has room for", [&] { (void)isend(endless, 1, world); });
      check_refused("a buffer of 3 elements is at address 0", [&] { recv(nowhere, 1, world); });
      check_refused("overlaps the one to send",
                    [&] { send_receive(std::span(data).first(2), 1, std::span(data).last(2), 1, world); });
      check_refused("source 5 is not a rank", [&] { (void)send_receive(1, 1, 5, world); });
    } else {
      for (const char* text : {"at address 0", "no memory has room for", "overlaps the one to send", "source 5"}) {
        const auto problem = error_of<peer_error>([&] { recv(std::span(data), 0, world); });
        CHECK(problem.peer() == 0);
        CHECK_FALSE(problem.fatal());
        CHECK_CONTAINS(problem.what(), text);
        CHECK_CONTAINS(problem.what(), "messages_misuse_test.cpp:");
      }
    }
    check_usable(world);
  });
}

TEST_CASE("messages: of two threads of one rank at once, the second gets a usage_error, and no message is mixed up") {
  run_noted(2, {}, [](const process_group& world) {
    if (world.rank() == 1) {
      CHECK(recv<int>(0, world, 1) == 1);
      send(2, 0, world, 2);
      check_usable(world);
      return;
    }
    std::jthread other([&] {
      CHECK(recv<int>(1, world, 2) == 2);  // until the other rank has the message of tag 1
    });
    wait_until([&] { return detail::group_access::state(world).busy.load(); });
    check_refused("another thread is inside an operation of this group", [&] { (void)irecv<int>(1, world, 99); });
    const auto through_the_engine = std::make_shared<engines::transfer>([&] {
      auto call = detail::object_call<int>("send", engines::movement::send, 1, std::source_location::current());
      call.tag = 1;
      call.bytes = sizeof(int);
      return call;
    }());
    const int one = 1;
    through_the_engine->data = std::as_bytes(std::span(&one, 1));
    auto& engine = detail::group_access::engine(world);
    engine.post({&through_the_engine, 1});
    engine.complete({&through_the_engine, 1});
    CHECK_FALSE(through_the_engine->problem);
    other.join();
    check_usable(world);
  });
}

TEST_CASE("messages: each send by many threads of one rank completes or is refused as a whole") {
  run_noted(2, {}, [](const process_group& world) {
    constexpr int threads = 4;
    constexpr int each = 50;
    using letter = std::pair<std::array<int, 2>, std::string>;
    if (world.rank() == 0) {
      std::vector<std::jthread> senders;
      for (int thread = 0; thread < threads; ++thread) {
        senders.emplace_back([&, thread] {
          for (int number = 0; number < each;) {
            try {
              send(letter({thread, number}, text_of(thread, as_index(number) * 50)), 1, world);
              ++number;
            } catch (const usage_error&) {
              std::this_thread::yield();
            }
          }
        });
      }
    } else {
      std::vector<int> next(threads);
      for (int message = 0; message < threads * each; ++message) {
        const auto [from, text] = recv<letter>(0, world);
        CHECK(from[1] == next.at(as_index(from[0]))++);
        CHECK((text == text_of(from[0], as_index(from[1]) * 50)));
      }
    }
    check_usable(world);
  });
}

}  // namespace
