// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <numeric>
#include <span>

#include <hfcomm/collectives/recv.hpp>
#include <hfcomm/collectives/send.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// The size of a message of this number: most are small, some pass through a slot.
std::size_t size_by(int number) { return number % 10 == 3 ? 20'000 + as_index(number) : as_index(number % 70); }

TEST_CASE("message order: one tag between two ranks keeps the order of the sends") {
  run_noted(2, {}, [](const process_group& world) {
    for (int number = 0; number < 2000; ++number) {
      if (world.rank() == 0) {
        send(text_of(number, size_by(number)), 1, world);
      } else {
        CHECK((recv<std::string>(0, world) == text_of(number, size_by(number))));
      }
    }
  });
}

TEST_CASE("message order: more messages in flight than envelopes complete in the order of the calls") {
  for (const bool receiver_first : {false, true}) {
    run_noted(2, {}, [&](const process_group& world) {
      constexpr int count = 300;
      const bool sends = world.rank() == 0;
      if (sends == receiver_first) {
        barrier(world);
      }
      std::vector<work<void>> going;
      std::vector<work<std::string>> coming;
      for (int number = 0; number < count; ++number) {
        if (sends) {
          going.push_back(isend(text_of(number, size_by(number)), 1, world));
        } else {
          coming.push_back(irecv<std::string>(0, world));
        }
      }
      if (sends != receiver_first) {
        barrier(world);
      }
      for (int number = 0; number < count; ++number) {
        if (sends) {
          going[as_index(number)].wait();
        } else {
          CHECK((coming[as_index(number)].wait() == text_of(number, size_by(number))));
        }
      }
      check_usable(world);
    });
  }
}

TEST_CASE("message order: at full speed no message overtakes another, and no receive another") {
  // The sender's envelopes are freed and filled all the time while the receiver looks through them.
  for (int turn = 0; turn < 5; ++turn) {
    run_noted(2, {}, [](const process_group& world) {
      constexpr int count = 3000;
      constexpr int window = 40;
      std::vector<work<void>> going;
      std::vector<work<int>> coming;
      int next = 0;
      for (int number = 0; number < count; ++number) {
        if (world.rank() == 0) {
          going.push_back(isend(number, 1, world));
          if (going.size() == window) {
            going.clear();
          }
        } else {
          coming.push_back(irecv<int>(0, world));
          if (coming.size() == window) {
            for (auto& one : coming) {
              CHECK(one.wait() == next++);
            }
            coming.clear();
          }
        }
      }
    });
  }
}

TEST_CASE("message order: tags may be received in another order than sent, each in its own order") {
  at_every_size(
      [](const process_group& world) {
        if (world.rank() == 0) {
          std::vector<work<void>> going;
          for (int to = 1; to < world.size(); ++to) {
            for (int number = 0; number < 4; ++number) {
              going.push_back(isend(text_of(number, 30'000), to, world, 1));
              going.push_back(isend(number, to, world, 2));
            }
          }
          for (auto& one : going) {
            one.wait();
          }
        } else {
          for (int number = 0; number < 4; ++number) {
            CHECK(recv<int>(0, world, 2) == number);
          }
          for (int number = 0; number < 4; ++number) {
            CHECK((recv<std::string>(0, world, 1) == text_of(number, 30'000)));
          }
        }
      },
      2);
}

TEST_CASE("message order: more large messages than slots may be waited for from the last to the first") {
  at_every_size(
      [](const process_group& world) {
        constexpr int each = 6;
        const std::size_t size = 300'000;
        std::vector<std::vector<char>> in;
        std::vector<std::string> out;
        std::vector<work<void>> works;
        for (int number = 0; number < each; ++number) {
          for (int other = 0; other < world.size(); ++other) {
            in.emplace_back(size + as_index(number));
            out.push_back(text_of(world.rank() + number, size + as_index(number)));
          }
        }
        for (int number = 0; number < each; ++number) {
          for (int other = 0; other < world.size(); ++other) {
            const std::size_t place = as_index(number * world.size() + other);
            works.push_back(isend(std::span(std::as_const(out[place])), other, world, number));
            works.push_back(irecv(std::span(in[place]), other, world, number));
          }
        }
        for (auto one = works.rbegin(); one != works.rend(); ++one) {
          one->wait();
        }
        for (int number = 0; number < each; ++number) {
          for (int other = 0; other < world.size(); ++other) {
            const auto& came = in[as_index(number * world.size() + other)];
            CHECK((std::string(came.begin(), came.end()) == text_of(other + number, size + as_index(number))));
          }
        }
      },
      2);
}

TEST_CASE("message order: an earlier receive from any_source comes before a later one from the same rank") {
  run_noted(2, {}, [](const process_group& world) {
    for (int turn = 0; turn < 300; ++turn) {
      if (world.rank() == 0) {
        send(10, 1, world);
        send(20, 1, world);
      } else {
        auto any = irecv<int>(any_source, world);
        auto specific = irecv<int>(0, world);
        CHECK(specific.wait() == 20);
        CHECK(any.wait().value == 10);
      }
    }
  });
}

TEST_CASE("message order: a message that is not received yet does not delay other tags and ranks") {
  at_every_size(
      [](const process_group& world) {
        std::vector<work<void>> late;
        if (world.rank() == 0) {
          for (int number = 0; number < 60; ++number) {
            late.push_back(isend(text_of(number, 100'000), 1, world, 9));  // more than all slots hold
          }
          for (int to = 1; to < world.size(); ++to) {
            send(text_of(to, 200'000), to, world, 5);
          }
        } else {
          CHECK((recv<std::string>(0, world, 5) == text_of(world.rank(), 200'000)));
        }
        barrier(world);
        for (int number = 0; number < 60 && world.rank() == 1; ++number) {
          CHECK((recv<std::string>(0, world, 9) == text_of(number, 100'000)));
        }
        late.clear();
        check_usable(world);
      },
      2);
}

}  // namespace
