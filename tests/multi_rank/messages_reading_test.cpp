// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include <hfcomm/collectives/recv.hpp>
#include <hfcomm/collectives/send.hpp>
#include <hfcomm/group/detail/group_state.hpp>

#include "../single_copies.hpp"

namespace {

using namespace hfcomm;
using namespace multi_rank;

using bytes = std::vector<std::uint8_t>;

constexpr std::size_t least = engines::least_read_bytes;
constexpr std::size_t piece = engines::most_read_at_once;

bytes bytes_of(std::size_t count, int seed) {
  bytes result(count);
  std::uint8_t* const place = result.data();
  for (std::size_t i = 0; i < count; ++i) {
    place[i] = static_cast<std::uint8_t>(i * 31 + i / 241 + as_index(seed) * 17);
  }
  return result;
}

/// Sends a message from rank 0 to rank 1, as elements and as an object. Returns whether bytes have passed through a
/// slot, on rank 0.
bool send_both(const process_group& world, std::size_t count) {
  const bytes sent = bytes_of(count, 1);
  if (world.rank() == 0) {
    send(std::span(sent), 1, world);
    const bool by_slot = memory_of(world).envelopes(0)[0].filled.load() != 0;
    send(sent, 1, world);
    return by_slot || memory_of(world).envelopes(0)[0].filled.load() != 0;
  }
  bytes got(count, 0xee);
  recv(std::span(got), 0, world);
  CHECK((got == sent));
  CHECK((recv<bytes>(0, world) == sent));
  return false;
}

TEST_CASE("messages: long ones are read in the sender's memory") {
  if (!can_read_memory()) {
    std::puts("[hfcomm] skipped: messages: long ones are read: no process may read its memory here");
    return;
  }
  run_ranks(2, [](const process_group& world) {
    send_both(world, least);  // the sender does not know yet that it will be read, and begins to fill a slot
    for (const std::size_t count : each_of(least, least + 1, piece - 1, piece, piece + 1, 3 * piece + 5)) {
      CAPTURE(count);
      CHECK_FALSE(send_both(world, count));
    }
    CHECK(send_both(world, least - 1) == (world.rank() == 0));
  });
}

TEST_CASE("messages: where the sender's memory cannot be read, all go through a slot") {
  run_ranks(2, [](const process_group& world) {
    if (world.rank() == 0) {
      hide_memory(world, 0);
    }
    for (const std::size_t count : each_of(least - 1, least, piece + 1, 3 * piece + 5)) {
      CAPTURE(count);
      CHECK(send_both(world, count) == (world.rank() == 0));
    }
  });
}

TEST_CASE("messages: where the sender's memory cannot be read any more, a message begins anew through a slot") {
  for (const bool is_object : {false, true}) {
    run_ranks(2, [&](const process_group& world) {
      const bytes sent = bytes_of(2 * piece, 3);
      send_both(world, least);
      if (world.rank() == 0) {
        is_object ? send(sent, 1, world) : send(std::span(sent), 1, world);
        CHECK(memory_of(world).envelopes(0)[0].filled.load() >= sent.size());
      } else {
        hide_memory(world, 0);
        bytes got(is_object ? 0 : sent.size(), 0xee);
        if (is_object) {
          got = recv<bytes>(0, world);
        } else {
          recv(std::span(got), 0, world);
        }
        CHECK((got == sent));
      }
    });
  }
}

TEST_CASE("messages: what a sender has given up is not read any more") {
  std::atomic<bool> is_given_up{false};
  run_ranks(2, [&](const process_group& world) {
    using namespace std::chrono_literals;
    const auto group = world.split(0).with_timeout(200ms);
    send_both(group, least);
    if (world.rank() == 0) {
      bytes data(2 * piece, 1);
      auto sending = isend(std::span(std::as_const(data)), 1, group);
      detail::group_access::engine(group).cancel();
      CHECK_THROWS_AS(sending.wait(), engine_error);
      std::ranges::fill(data, std::uint8_t{2});
      is_given_up.store(true);
      is_given_up.notify_all();
    } else {
      is_given_up.wait(false);
      bytes got(2 * piece);
      CHECK_THROWS_AS(recv(std::span(got), 0, group), error);
    }
  });
}

TEST_CASE("works: messages that nobody waits for are moved on, before and after a thread has waited") {
  run_ranks(2, [](const process_group& world) {
    using namespace std::chrono_literals;
    const int other = 1 - world.rank();
    for (int round = 0; round < 3; ++round) {
      const bytes sent = bytes_of(3000, round);
      bytes got(sent.size());
      auto receiving = irecv(std::span(got), other, world);
      auto sending = isend(std::span(sent), other, world);
      while (!receiving.done() || !sending.done()) {
        std::this_thread::sleep_for(100us);
      }
      CHECK((got == sent));
      std::ranges::fill(got, std::uint8_t{0});
      // From here on a thread waits before each post, so the worker has no reason to be quick.
      auto again = irecv(std::span(got), other, world);
      isend(std::span(sent), other, world).wait();
      CHECK(again.wait(10s));
      CHECK((got == sent));
    }
  });
}

}  // namespace
