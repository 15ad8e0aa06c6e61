// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <span>

#include <hfcomm/collectives/recv.hpp>
#include <hfcomm/collectives/send.hpp>
#include <hfcomm/collectives/send_receive.hpp>

#include "../single_copies.hpp"

namespace {

using namespace hfcomm;
using namespace multi_rank;

constexpr std::size_t ring = std::size_t{1} << 16;  // of a message's slot, with up to eight ranks
// Sizes around an envelope's payload, a ring and its quarters, and several times around the ring.
constexpr auto message_sizes = each_of(0, 1, 7, 56, 57, 64, ring / 4 - 1, ring / 4, ring / 4 + 1, ring / 2, ring - 1,
                                       ring, ring + 1, ring + ring / 4, 3 * ring + 5, (std::size_t{2} << 20) + 3);

std::vector<std::uint8_t> bytes_of(int from, int to, std::size_t count) {
  std::vector<std::uint8_t> bytes(count);
  std::uint8_t* const place = bytes.data();
  for (std::size_t i = 0; i < count; ++i) {
    place[i] = static_cast<std::uint8_t>(i * 31 + i / 241 + as_index(from) * 17 + as_index(to) * 5);
  }
  return bytes;
}

TEST_CASE("send and recv: buffers of every size go from each rank to the next") {
  at_every_size(
      [](const process_group& world) {
        if (world.rank() % 2 == 1) {
          hide_memory(world, world.rank());  // what these ranks send passes through slots
        }
        const int next = (world.rank() + 1) % world.size();
        const int before = (world.rank() + world.size() - 1) % world.size();
        for (const std::size_t count : message_sizes) {
          const auto out = bytes_of(world.rank(), next, count);
          std::vector<std::uint8_t> in(count, 0xee);
          if (world.rank() % 2 == 0) {
            send(std::span(out), next, world);
          }
          if (world.rank() != 0 || world.size() % 2 == 0) {
            recv(std::span(in), before, world);
            CHECK((in == bytes_of(before, world.rank(), count)));
          }
          if (world.rank() % 2 == 1) {
            send(std::span(out), next, world);
          }
          if (world.rank() == 0 && world.size() % 2 == 1) {  // an odd ring: the last even rank sends to this one
            recv(std::span(in), before, world);
            CHECK((in == bytes_of(before, world.rank(), count)));
          }
        }
        check_usable(world);
      },
      2);
}

TEST_CASE("send and recv: objects go from each rank to each other") {
  at_every_size(
      [](const process_group& world) {
        using object = std::map<std::string, std::vector<int>>;
        const auto made_by = [](int from, int to) {
          return object{{"from", {from}}, {text_of(to, 300), std::vector<int>(1000, to)}, {"", {}}};
        };
        for (int from = 0; from < world.size(); ++from) {
          for (int to = 0; to < world.size(); ++to) {
            if (from != to && world.rank() == from) {
              send(made_by(from, to), to, world, from);
            } else if (from != to && world.rank() == to) {
              CHECK((recv<object>(from, world, from) == made_by(from, to)));
            }
          }
        }
        check_usable(world);
      },
      2);
}

TEST_CASE("send and recv: objects may have every size, be empty or be plain") {
  run_noted(2, {}, [](const process_group& world) {
    for (const std::size_t size : message_sizes) {
      const auto text = text_of(1, size);
      if (world.rank() == 0) {
        CHECK((recv<std::string>(1, world) == text));
      } else {
        send(text, 0, world);
      }
    }
    for (int turn = 0; turn < 100; ++turn) {
      if (world.rank() == 0) {
        send(turn, 1, world);
        CHECK(recv<double>(1, world) == turn + 0.5);
      } else {
        CHECK(recv<int>(0, world) == turn);
        send(turn + 0.5, 0, world);
      }
    }
  });
}

TEST_CASE("send_receive: buffers go around a ring and between pairs, and may differ in length and type") {
  at_every_size([](const process_group& world) {
    const int right = (world.rank() + 1) % world.size();
    const int left = (world.rank() + world.size() - 1) % world.size();
    for (const std::size_t count : message_sizes) {
      auto out = bytes_of(world.rank(), right, count);
      std::vector<std::uint8_t> in(count);
      send_receive(std::span<const std::uint8_t>(out), right, std::span(in), left, world);
      CHECK((in == bytes_of(left, world.rank(), count)));
      send_receive(std::span(out), left, std::span(in), right, world, 7);
      CHECK((in == bytes_of(right, (right + 1) % world.size(), count)));
    }
    // Pairs, with the odd one out talking to itself; each rank sends as many elements as its number says.
    const int partner = (world.rank() ^ 1) < world.size() ? world.rank() ^ 1 : world.rank();
    const std::vector<double> mine(as_index(world.rank()) * 5000, world.rank());
    std::vector<double> theirs(as_index(partner) * 5000);
    send_receive(std::span(mine), partner, std::span(theirs), partner, world);
    CHECK(std::all_of(theirs.begin(), theirs.end(), [&](double value) { return value == partner; }));
    check_usable(world);
  });
}

TEST_CASE("send_receive: objects go around the ring until each is back at its rank") {
  at_every_size([](const process_group& world) {
    auto travels = text_of(world.rank(), 100'000 + as_index(world.rank()));
    for (int step = 0; step < world.size(); ++step) {
      travels = send_receive(travels, (world.rank() + 1) % world.size(),
                             (world.rank() + world.size() - 1) % world.size(), world);
    }
    CHECK((travels == text_of(world.rank(), 100'000 + as_index(world.rank()))));
  });
}

TEST_CASE("messages to oneself: isend and irecv work in either order, at every size of group") {
  at_every_size([](const process_group& world) {
    const int me = world.rank();
    for (const std::size_t count : message_sizes) {
      const auto out = bytes_of(me, me, count);
      std::vector<std::uint8_t> in(count);
      auto coming = irecv(std::span(in), me, world, 3);
      auto going = isend(std::span(out), me, world, 3);
      going.wait();
      coming.wait();
      CHECK((in == out));
    }
    auto going = isend(text_of(me, 100'000), me, world);
    auto coming = irecv<std::string>(any_source, world);
    const auto came = coming.wait();
    CHECK((came.value == text_of(me, 100'000)));
    CHECK(came.source == me);
    going.wait();
  });
}

TEST_CASE("any_source: it receives objects and buffers from every rank and tells the source") {
  at_every_size(
      [](const process_group& world) {
        constexpr int rounds = 20;
        if (world.rank() != 0) {
          for (int round = 0; round < rounds; ++round) {
            const std::array numbers{world.rank(), round};
            send(text_of(world.rank(), as_index(round) * 500), 0, world, 1);
            send(std::span(numbers), 0, world, 2);
          }
          return;
        }
        std::vector<int> texts(as_index(world.size()));
        std::vector<int> next(as_index(world.size()));
        for (int message = 0; message < rounds * (world.size() - 1); ++message) {
          const auto [text, source] = recv<std::string>(any_source, world, 1);
          CHECK((text == text_of(source, as_index(texts[as_index(source)]++) * 500)));
          std::array<int, 2> numbers{};
          const int sender = recv(std::span(numbers), any_source, world, 2);
          CHECK(numbers[0] == sender);
          CHECK(numbers[1] == next[as_index(sender)]++);
        }
        CHECK(std::count(texts.begin() + 1, texts.end(), rounds) == world.size() - 1);
        CHECK(std::count(next.begin() + 1, next.end(), rounds) == world.size() - 1);
      },
      2);
}

TEST_CASE("any_source: it takes turns among ranks that all have a message") {
  for (const int ranks : rank_counts_from(3)) {
    run_noted(ranks, {}, [](const process_group& world) {
      constexpr int rounds = 10;
      if (world.rank() != 0) {
        std::vector<work<void>> going;
        for (int round = 0; round < rounds; ++round) {
          going.push_back(isend(round, 0, world));
        }
        barrier(world);  // everything is on offer before anything is taken
        for (auto& one : going) {
          one.wait();
        }
        return;
      }
      barrier(world);
      for (int round = 0; round < rounds; ++round) {
        std::vector<int> heard;
        for (int turn = 1; turn < world.size(); ++turn) {
          const auto [value, source] = recv<int>(any_source, world);
          CHECK(value == round);
          heard.push_back(source);
        }
        std::sort(heard.begin(), heard.end());
        CHECK(std::adjacent_find(heard.begin(), heard.end()) == heard.end());
      }
    });
  }
}

}  // namespace
