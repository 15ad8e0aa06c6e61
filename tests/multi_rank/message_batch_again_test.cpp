// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <hfcomm/collectives/message_batch.hpp>
#include <hfcomm/collectives/recv.hpp>
#include <hfcomm/collectives/send.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// A halo exchange in a ring.
struct ring {
  explicit ring(const process_group& world, std::size_t width)
      : left((world.rank() + world.size() - 1) % world.size()),
        right((world.rank() + 1) % world.size()),
        mine(width),
        from_left(width),
        from_right(width),
        batch(world) {
    batch.send(std::span(mine), right, 0).recv(std::span(from_left), left, 0);
    batch.send(std::span(mine), left, 1).recv(std::span(from_right), right, 1);
  }

  void set(int rank, int round) { mine.assign(mine.size(), rank + 100 * round); }
  void check(int round) const {
    CHECK((from_left == std::vector<double>(mine.size(), left + 100 * round)));
    CHECK((from_right == std::vector<double>(mine.size(), right + 100 * round)));
  }

  int left;
  int right;
  std::vector<double> mine;
  std::vector<double> from_left;
  std::vector<double> from_right;
  message_batch batch;
};

TEST_CASE("a batch that runs again: it sends what is in the buffers then") {
  at_every_size([](const process_group& world) {
    for (const std::size_t width : each_of(1, 1000, 200'000)) {
      ring halo(world, width);
      for (int round = 1; round < 5; ++round) {
        halo.set(world.rank(), round);
        halo.batch.run();
        halo.check(round);
      }
    }
    check_usable(world);
  });
}

TEST_CASE("a batch that is started: the work is done when all messages are") {
  at_every_size([](const process_group& world) {
    ring halo(world, 1000);
    for (int round = 1; round < 5; ++round) {
      halo.set(world.rank(), round);
      auto work = halo.batch.start();
      if (round % 2 == 0) {
        barrier(world);  // other calls may come between
      }
      work.wait();
      halo.check(round);
    }
    halo.set(world.rank(), 7);
    halo.batch.run();
    halo.check(7);
    check_usable(world);
  });
}

work<int> sum_of_next(message_batch& batch, std::vector<int>& in) {
  co_await batch.start();
  co_return std::accumulate(in.begin(), in.end(), 0);
}

TEST_CASE("a batch that is started: a coroutine awaits it, and objects are received") {
  run_noted(2, {}, [](const process_group& world) {
    const int other = 1 - world.rank();
    std::vector<int> out(3, world.rank() + 1);
    std::vector<int> in(3);
    message_batch batch(world);
    batch.send(std::span(out), other).recv(std::span(in), other);
    CHECK(sum_of_next(batch, in).wait() == 3 * (other + 1));
    std::string text;
    message_batch objects(world);
    objects.send(text_of(world.rank(), 100), other).recv(text, other).start().wait();
    CHECK((text == text_of(other, 100)));
    message_batch empty(world);
    empty.start().wait();
    empty.run();
    check_usable(world);
  });
}

TEST_CASE("a batch that is started may be destroyed, and its work be dropped") {
  run_noted(2, {}, [](const process_group& world) {
    const int other = 1 - world.rank();
    std::vector<int> out(3, world.rank() + 1);
    std::vector<int> in(3);
    {
      auto work = [&] {
        message_batch batch(world);
        batch.send(std::span(out), other).recv(std::span(in), other);
        return batch.start();
      }();
    }
    CHECK((in == std::vector<int>(3, other + 1)));
    check_usable(world);
  });
}

TEST_CASE("a batch under way cannot run again") {
  run_noted(2, {}, [](const process_group& world) {
    const int other = 1 - world.rank();
    const std::vector<int> sent(3, world.rank());
    std::vector<int> in(3);
    message_batch batch(world);
    batch.recv(std::span(in), other);
    auto work = batch.start();
    CHECK_CONTAINS(error_of<usage_error>([&] { batch.run(); }).what(), "under way still");
    CHECK_CONTAINS(error_of<usage_error>([&] { (void)batch.start(); }).what(), "message_batch_again_test.cpp");
    barrier(world);
    send(std::span(sent), other, world);
    work.wait();
    check_usable(world);
  });
}

TEST_CASE("a batch that runs again: copied objects cannot be sent twice, and their receiver is told") {
  run_noted(2, {}, [](const process_group& world) {
    const int other = 1 - world.rank();
    std::string text;
    message_batch batch(world);
    if (world.rank() == 0) {
      batch.send(std::string("first"), other).run();
      CHECK_CONTAINS(error_of<usage_error>([&] { batch.run(); }).what(), "copied when they were added");
      batch.send(std::string("second"), other).run();
    } else {
      batch.recv(text, other).run();
      CHECK(text == "first");
      const auto problem = error_of<peer_error>([&] { batch.run(); });
      CHECK(problem.peer() == other);
      CHECK_CONTAINS(problem.what(), "cannot send again");
      batch.run();
      CHECK(text == "second");
    }
    check_usable(world);
  });
}

TEST_CASE("a batch that is started: the work throws what run would throw, and no object is received") {
  run_noted(2, {}, [](const process_group& world) {
    const int other = 1 - world.rank();
    std::vector<int> out(3 + static_cast<std::size_t>(world.rank()), 1);
    std::vector<int> in(3);
    std::string text = "as before";
    message_batch batch(world);
    batch.send(std::span(out), other, 1).recv(std::span(in), other, 1);
    batch.send(std::string("new"), other, 2).recv(text, other, 2);
    auto work = batch.start();
    CHECK_CONTAINS(error_of<mismatch_error>([&] { work.wait(); }).what(), "message_batch::");
    CHECK(text == "as before");
    check_usable(world);
  });
}

struct refuses_to_be_saved {
  template <class Archive>
  void save(Archive& /*archive*/) const {
    throw std::domain_error("not now");
  }
  template <class Archive>
  void load(Archive& /*archive*/) {}
};

TEST_CASE("a batch that is started: an object that cannot be encoded is the work's error, and its receiver is told") {
  run_noted(2, {}, [](const process_group& world) {
    const int other = 1 - world.rank();
    std::vector<int> in(3);
    const std::vector<int> out(3, world.rank() + 1);
    message_batch batch(world);
    batch.recv(std::span(in), other, 2).send(std::span(out), other, 2);
    if (world.rank() == 0) {
      batch.send(refuses_to_be_saved(), other, 1);
      auto work = batch.start();
      CHECK_CONTAINS(error_of<std::domain_error>([&] { work.wait(); }).what(), "not now");
    } else {
      refuses_to_be_saved object;
      batch.recv(object, other, 1);
      auto work = batch.start();
      CHECK_CONTAINS(error_of<peer_error>([&] { work.wait(); }).what(), "not now");
    }
    CHECK((in == std::vector<int>(3, other + 1)));
    check_usable(world);
  });
}

TEST_CASE("a batch that has run: what is added then is another batch") {
  run_noted(2, {}, [](const process_group& world) {
    const int other = 1 - world.rank();
    std::vector<int> out(3, world.rank() + 1);
    std::vector<int> in(3);
    std::vector<int> in_too(3);
    message_batch batch(world);
    batch.send(std::span(out), other, 1).recv(std::span(in), other, 1).run();
    in.assign(3, -1);
    batch.send(std::span(out), other, 2).recv(std::span(in_too), other, 2).run();
    CHECK((in == std::vector<int>(3, -1)));
    CHECK((in_too == std::vector<int>(3, other + 1)));
    check_usable(world);
  });
}

TEST_CASE("a batch that runs again: borders without a neighbour stay as they are") {
  at_every_size([](const process_group& world) {
    const int left = world.rank() > 0 ? world.rank() - 1 : null_rank;
    const int right = world.rank() + 1 < world.size() ? world.rank() + 1 : null_rank;
    std::vector<int> mine(4);
    std::vector<int> halo(4, -1);
    message_batch batch(world);
    batch.send(std::span(mine), right).recv(std::span(halo), left);
    for (int round = 1; round < 4; ++round) {
      mine.assign(4, world.rank() + 10 * round);
      round == 2 ? batch.start().wait() : batch.run();
      CHECK((halo == std::vector<int>(4, left == null_rank ? -1 : left + 10 * round)));
    }
    check_usable(world);
  });
}

}  // namespace
