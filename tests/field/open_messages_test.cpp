// SPDX-License-Identifier: MIT
#include "../multi_rank/ranks.hpp"

#include <atomic>
#include <chrono>
#include <optional>
#include <vector>

#include <hfcomm/collectives/all_reduce.hpp>
#include <hfcomm/collectives/recv.hpp>
#include <hfcomm/collectives/send.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

TEST_CASE("a receive that nobody waits for has no deadline, and takes the message that comes later") {
  run_noted(2, {}, [](const process_group& world) {
    const auto group = world.with_timeout(std::chrono::milliseconds(150));
    std::optional<work<int>> stop;
    if (world.rank() == 1) {
      stop = irecv<int>(0, group, 9);
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(600);
    for (bool goes_on = true; goes_on;) {
      goes_on = all_reduce(static_cast<int>(std::chrono::steady_clock::now() < end), reduce_op::sum, group) == 2;
    }
    if (world.rank() == 0) {
      send(5, 1, group, 9);
    } else {
      CHECK(stop->wait() == 5);
    }
    check_usable(group);
  });
}

TEST_CASE("a receive that a thread waits for has its deadline from then on") {
  std::atomic<bool> has_given_up{false};
  run_noted(2, {}, [&](const process_group& world) {
    const auto group = world.with_timeout(std::chrono::milliseconds(150));
    if (world.rank() == 1) {
      auto stop = irecv<int>(0, group, 9);
      std::this_thread::sleep_for(std::chrono::milliseconds(400));
      const auto begin = std::chrono::steady_clock::now();
      CHECK((error_of<timeout_error>([&] { (void)stop.wait(); }).missing() == std::vector{0}));
      CHECK(std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(120));
      has_given_up = true;
    }
    while (!has_given_up) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // this rank is there, and sends nothing
    }
  });
}

}  // namespace
