// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <limits>
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

/// Rank 0 sends with `sends(group)`, rank 1 receives with `receives(group)`; they do not match, and both must throw.
template <class Send, class Receive>
void check_mismatch(const process_group& world, Send sends, Receive receives, const std::string& sent,
                    const std::string& wanted) {
  const auto problem = error_of<mismatch_error>([&] {
    if (world.rank() == 0) {
      sends();
    } else {
      receives();
    }
  });
  CHECK(problem.first_rank() == 0);
  CHECK(problem.second_rank() == 1);
  CHECK(problem.rank() == world.rank());
  CHECK_CONTAINS(problem.what(), "rank 0 sends what rank 1 does not want");
  CHECK_CONTAINS(problem.what(), "rank 0 called " + sent);
  CHECK_CONTAINS(problem.what(), "rank 1 called " + wanted);
  const std::string text = problem.what();
  const auto first = text.find(") at messages_mismatch_test.cpp:");
  REQUIRE(first != std::string::npos);
  CHECK(text.find(") at messages_mismatch_test.cpp:", first + 1) != std::string::npos);
  // What follows with the same tag is not affected.
  if (world.rank() == 0) {
    send(std::string("fits"), 1, world);
  } else {
    CHECK(recv<std::string>(0, world) == "fits");
  }
  check_usable(world);
}

TEST_CASE("messages: a send that does not match the receive throws on both sides, with both calls and lines") {
  run_noted(2, {}, [](const process_group& world) {
    std::vector<float> floats(100'000);
    std::vector<int> ints(100'000);
    const std::span<float> three(floats.data(), 3);
    check_mismatch(
        world, [&] { send(three, 1, world); }, [&] { recv(std::span(floats.data(), 4), 0, world); },
        "send(3 x float32, to rank 1)", "recv(4 x float32, from rank 0)");
    check_mismatch(
        world, [&] { send(std::span(floats), 1, world); }, [&] { recv(std::span(floats).first(99'999), 0, world); },
        "send(100000 x float32, to rank 1)", "recv(99999 x float32, from rank 0)");
    check_mismatch(
        world, [&] { send(three.first(0), 1, world); }, [&] { (void)recv(three, any_source, world); },
        "send(0 x float32, to rank 1)", "recv(3 x float32, from any rank)");
    check_mismatch(
        world, [&] { send(std::span(floats), 1, world); }, [&] { recv(std::span(ints), 0, world); },
        "send(100000 x float32, to rank 1)", "recv(100000 x int32, from rank 0)");
    check_mismatch(
        world, [&] { send(three, 1, world); }, [&] { (void)recv<std::vector<float>>(0, world); },
        "send(3 x float32, to rank 1)", "recv(an object of type ");
    check_mismatch(
        world, [&] { send(std::string("text"), 1, world); }, [&] { (void)recv<int>(any_source, world); },
        "send(an object of type ", "recv(an object of type int, from any rank)");
    check_mismatch(
        world, [&] { isend(floats, 1, world).wait(); }, [&] { irecv(three, 0, world).wait(); },
        "isend(an object of type ", "irecv(3 x float32, from rank 0)");
    check_mismatch(
        world, [&] { message_batch(world).send(1, 1).run(); },
        [&] {
          double number{};
          message_batch(world).recv(number, 0).run();
        },
        "message_batch::send(an object of type int, to rank 1)",
        "message_batch::recv(an object of type double, from rank 0)");
  });
}

TEST_CASE("send_receive: only the half that does not match fails, on both ranks") {
  run_noted(2, {}, [](const process_group& world) {
    const std::vector<int> out(10, world.rank());
    std::vector<int> in(world.rank() == 0 ? 10 : 9);  // rank 0 sends ten where rank 1 wants nine
    const int other = 1 - world.rank();
    const auto problem =
        error_of<mismatch_error>([&] { send_receive(std::span(out), other, std::span(in), other, world); });
    CHECK(problem.first_rank() == 0);
    CHECK(problem.second_rank() == 1);
    if (world.rank() == 0) {
      CHECK((in == std::vector<int>(10, 1)));
    }
    check_usable(world);
  });
}

struct breaks_when_saved {
  std::size_t text = 0;
  template <class Archive>
  void save(Archive&) const {
    throw std::runtime_error("the cupboard is bare" + std::string(text, '!'));
  }
  template <class Archive>
  void load(Archive&) {}
};

TEST_CASE("messages: the receiver gets the text of a serialize() that throws, short or long, whatever it receives") {
  at_every_size(
      [](const process_group& world) {
        const int last = world.size() - 1;
        if (world.rank() == 0) {
          for (const std::size_t length : each_of(0, 200'000)) {
            CHECK_THROWS_AS(send(breaks_when_saved{length}, last, world), std::runtime_error);
            CHECK_THROWS_AS((void)isend(breaks_when_saved{length}, last, world), std::runtime_error);
            CHECK_THROWS_AS((void)send_receive(breaks_when_saved{length}, last, last, world), std::runtime_error);
            CHECK_THROWS_AS(message_batch(world).send(breaks_when_saved{length}, last).run(), std::runtime_error);
          }
          send(42, last, world);
        } else if (world.rank() == last) {
          std::array<int, 3> data{};
          const auto check = [&](auto call, std::size_t length) {
            const auto problem = error_of<peer_error>(call);
            CHECK(problem.peer() == 0);
            CHECK_FALSE(problem.fatal());
            CHECK_CONTAINS(problem.what(), "rank 0 ");
            CHECK_CONTAINS(problem.what(), "messages_mismatch_test.cpp:");
            CHECK_CONTAINS(problem.what(), "threw: the cupboard is bare" + std::string(length, '!'));
          };
          for (const std::size_t length : each_of(0, 200'000)) {
            check([&] { (void)recv<breaks_when_saved>(0, world); }, length);
            check([&] { (void)recv(std::span(data), any_source, world); }, length);
            check([&] { (void)irecv<std::string>(0, world).wait(); }, length);
            check([&] { irecv(std::span(data), 0, world).wait(); }, length);
          }
          CHECK(recv<int>(0, world) == 42);
        }
        check_usable(world);
      },
      2);
}

TEST_CASE("messages: an error text that no rank receives delays no rank and breaks nothing") {
  run_noted(3, {}, [](const process_group& world) {
    {
      const auto pair = world.split(world.rank() == 2 ? 1 : 0).with_timeout(std::chrono::milliseconds(50));
      if (world.rank() == 0) {
        CHECK_THROWS_AS(send(breaks_when_saved{}, 1, pair), std::runtime_error);
        barrier(world);  // here rank 1 leaves the pair
        barrier(world);
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        CHECK_FALSE(pair.broken());
      } else {
        barrier(world);
      }
    }
    if (world.rank() != 0) {
      barrier(world);
    }
    check_usable(world);
  });
}

struct breaks_when_loaded {
  template <class Archive>
  void save(Archive& archive) const {
    archive(1);
  }
  template <class Archive>
  void load(Archive& archive) {
    int one = 0;
    archive(one);
    throw std::invalid_argument("one is not enough");
  }
};

TEST_CASE("messages: an object that cannot be decoded is the receiver's error") {
  run_noted(2, {}, [](const process_group& world) {
    if (world.rank() == 0) {
      send(breaks_when_loaded{}, 1, world);
      isend(breaks_when_loaded{}, 1, world).wait();
      send(breaks_when_loaded{}, 1, world);
    } else {
      const auto check = [](auto call) {
        CHECK_CONTAINS(error_of<decode_error>(call).what(), "the object from rank 0: one is not enough");
      };
      check([&] { (void)recv<breaks_when_loaded>(0, world); });
      check([&] { (void)irecv<breaks_when_loaded>(any_source, world).wait(); });
      breaks_when_loaded object;
      check([&] { message_batch(world).recv(object, 0).run(); });
    }
    check_usable(world);
  });
}

TEST_CASE("messages: one too large for the receiver's memory is an error on both sides") {
  run_noted(2, {}, [](const process_group& world) {
    auto& engine = detail::group_access::engine(world);
    // More than a vector can hold: nothing that a sanitizer would have to allocate.
    for (const std::uint64_t bytes : {std::uint64_t{1} << 63, std::numeric_limits<std::uint64_t>::max()}) {
      if (world.rank() == 0) {
        auto call =
            detail::object_call<std::string>("send", engines::movement::send, 1, std::source_location::current());
        call.bytes = bytes;
        const auto lie = std::make_shared<engines::transfer>(call);
        engine.post({&lie, 1});
        engine.complete({&lie, 1});
        const auto problem = error_of<peer_error>([&] { std::rethrow_exception(lie->problem); });
        CHECK_CONTAINS(problem.what(), "no memory for a message of " + std::to_string(bytes) + " bytes");
      } else {
        CHECK_CONTAINS(error_of<engine_error>([&] { (void)recv<std::string>(0, world); }).what(),
                       "no memory for a message of " + std::to_string(bytes) + " bytes from rank 0");
      }
    }
    check_usable(world);
  });
}

}  // namespace
