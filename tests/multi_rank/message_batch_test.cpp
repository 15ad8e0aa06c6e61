// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <algorithm>
#include <numeric>
#include <span>

#include <hfcomm/collectives/message_batch.hpp>
#include <hfcomm/collectives/recv.hpp>
#include <hfcomm/collectives/send.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

TEST_CASE("message_batch: it exchanges halos with both neighbours at once, repeatedly") {
  at_every_size([](const process_group& world) {
    const int left = (world.rank() + world.size() - 1) % world.size();
    const int right = (world.rank() + 1) % world.size();
    for (const std::size_t width : each_of(1, 1000, 200'000)) {
      std::vector<double> cells(width, world.rank());
      std::vector<double> from_left(width, -1);
      std::vector<double> from_right(width, -1);
      message_batch batch(world);
      for (int round = 0; round < 3; ++round) {
        std::fill(cells.begin(), cells.end(), world.rank() + 100 * round);
        // Tag 0 travels to the right, tag 1 to the left: with two ranks, both neighbours are the same.
        batch.send(std::span(cells), right, 0).recv(std::span(from_left), left, 0);
        batch.send(std::span(cells), left, 1).recv(std::span(from_right), right, 1);
        batch.run();
        CHECK((from_left == std::vector<double>(width, left + 100 * round)));
        CHECK((from_right == std::vector<double>(width, right + 100 * round)));
      }
    }
    check_usable(world);
  });
}

TEST_CASE("message_batch: it may hold objects and buffers to and from all ranks, and may be moved") {
  at_every_size([](const process_group& world) {
    std::vector<std::string> texts(as_index(world.size()));
    std::vector<std::vector<int>> numbers(as_index(world.size()));
    message_batch batch(world);
    {
      auto filled = [&] {
        message_batch fresh(world);
        for (int other = 0; other < world.size(); ++other) {
          auto gone = text_of(world.rank(), as_index(other) * 70'000);
          fresh.send(gone, other);
          gone = "changed, which is fine: objects are copied";
        }
        return fresh;
      }();
      batch = std::move(filled);
    }
    const std::vector<int> mine(as_index(world.rank()) + 1, world.rank());
    for (int other = 0; other < world.size(); ++other) {
      auto& theirs = numbers[as_index(other)];
      theirs.resize(as_index(other) + 1);
      batch.recv(texts[as_index(other)], other);
      batch.recv(std::span(theirs), other, 1).send(std::span(mine), other, 1);
    }
    batch.run();
    for (int other = 0; other < world.size(); ++other) {
      CHECK((texts[as_index(other)] == text_of(other, as_index(world.rank()) * 70'000)));
      CHECK((numbers[as_index(other)] == std::vector<int>(as_index(other) + 1, other)));
    }
    check_usable(world);
  });
}

TEST_CASE("message_batch: when one message does not match, the others arrive, and the batch can be reused") {
  run_noted(2, {}, [](const process_group& world) {
    const int other = 1 - world.rank();
    std::vector<int> first(3);
    std::vector<int> second(100'000);
    std::vector<int> mine(100'000, world.rank() + 1);
    std::string text = "as before";
    message_batch batch(world);
    batch.send(std::span(mine).first(4), other, 1).recv(std::span(first), other, 1);
    batch.send(std::span(mine), other, 2).recv(std::span(second), other, 2);
    batch.send(std::string("new"), other, 3).recv(text, other, 3);
    const auto problem = error_of<mismatch_error>([&] { batch.run(); });
    CHECK_CONTAINS(problem.what(), "message_batch::send(4 x int32");
    CHECK_CONTAINS(problem.what(), "message_batch::recv(3 x int32");
    CHECK(problem.first_rank() == world.rank());  // the first problem in the order of the calls: what is sent
    CHECK((second == std::vector<int>(100'000, other + 1)));
    CHECK(text == "as before");
    batch.send(std::string("newer"), other, 3).recv(text, other, 3).run();
    CHECK(text == "newer");
    check_usable(world);
  });
}

struct refuses_odd {
  int value = 0;
  template <class Archive>
  void save(Archive& archive) const {
    archive(value);
  }
  template <class Archive>
  void load(Archive& archive) {
    archive(value);
    if (value % 2 != 0) {
      throw std::runtime_error("odd");
    }
  }
};

TEST_CASE("message_batch: after an object that cannot be decoded, the others are received") {
  run_noted(2, {}, [](const process_group& world) {
    const int other = 1 - world.rank();
    refuses_odd one;
    refuses_odd two;
    message_batch batch(world);
    batch.send(refuses_odd{1}, other).send(refuses_odd{2}, other).recv(one, other).recv(two, other);
    CHECK_CONTAINS(error_of<decode_error>([&] { batch.run(); }).what(), "odd");
    CHECK(one.value == 0);
    CHECK(two.value == 2);
    check_usable(world);
  });
}

TEST_CASE("message_batch: its messages match plain ones") {
  run_noted(3, {}, [](const process_group& world) {
    if (world.rank() == 0) {
      int from_one = 0;
      int from_two = 0;
      message_batch(world).recv(from_two, 2).recv(from_one, 1).send(10, 1).send(20, 2).run();
      CHECK(from_one == 1);
      CHECK(from_two == 2);
    } else {
      send(world.rank(), 0, world);
      CHECK(recv<int>(0, world) == world.rank() * 10);
    }
    check_usable(world);
  });
}

TEST_CASE("message_batch: more messages than there are envelopes work in both directions") {
  run_noted(2, {}, [](const process_group& world) {
    const int other = 1 - world.rank();
    std::vector<std::string> texts(150);
    message_batch batch(world);
    for (std::size_t number = 0; number < texts.size(); ++number) {
      batch.send(text_of(world.rank(), number * 200), other).recv(texts[number], other);
    }
    batch.run();
    for (std::size_t number = 0; number < texts.size(); ++number) {
      CHECK((texts[number] == text_of(other, number * 200)));
    }
  });
}

}  // namespace
