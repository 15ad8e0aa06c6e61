// SPDX-License-Identifier: MIT
// Measures a message there and back between two ranks: microseconds of a round, the median and the best and worst
// tenth.
//   ping_pong [bytes ...]     (8 1024 4096 16384 65536 262144)
//
// send       send and recv
// isend      isend and irecv, waited for at once
// wait_any   the same, waited for by wait_any
// coroutine  the same through a coroutine that awaits them

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/comm.hpp>

namespace {

using buffer = std::vector<std::byte>;

constexpr int warmup = 200;
constexpr int rounds = 2000;

hfcomm::work<void> awaited(hfcomm::work<void> message) { co_await message; }

void wait_for_any(hfcomm::work<void> message) { (void)hfcomm::wait_any(message); }

void await_work(hfcomm::work<void> message) { awaited(std::move(message)).wait(); }

struct way {
  const char* name;
  std::function<void(buffer&, int)> send;
  std::function<void(buffer&, int)> receive;
};

const std::vector<way> ways{
    {"send", [](buffer& data, int rank) { hfcomm::send(std::span<const std::byte>(data), rank); },
     [](buffer& data, int rank) { hfcomm::recv(std::span(data), rank); }},
    {"isend", [](buffer& data, int rank) { hfcomm::isend(std::span<const std::byte>(data), rank).wait(); },
     [](buffer& data, int rank) { hfcomm::irecv(std::span(data), rank).wait(); }},
    {"wait_any", [](buffer& data, int rank) { wait_for_any(hfcomm::isend(std::span<const std::byte>(data), rank)); },
     [](buffer& data, int rank) { wait_for_any(hfcomm::irecv(std::span(data), rank)); }},
    {"coroutine", [](buffer& data, int rank) { await_work(hfcomm::isend(std::span<const std::byte>(data), rank)); },
     [](buffer& data, int rank) { await_work(hfcomm::irecv(std::span(data), rank)); }},
};

void measure(const way& how, std::size_t bytes) {
  buffer data(bytes);
  std::vector<double> times;
  hfcomm::barrier();
  for (int round = 0; round < warmup + rounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    if (hfcomm::rank() == 0) {
      std::ranges::fill(data, static_cast<std::byte>(round));
      how.send(data, 1);
      how.receive(data, 1);
    } else {
      how.receive(data, 0);
      how.send(data, 0);
    }
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
    if (round >= warmup) {
      times.push_back(time.count());
    }
    if (std::ranges::count(data, static_cast<std::byte>(round)) != static_cast<std::ptrdiff_t>(bytes)) {
      std::fprintf(stderr, "%s of %zu bytes: wrong bytes in round %d\n", how.name, bytes, round);
      std::exit(1);
    }
  }
  std::ranges::sort(times);
  if (hfcomm::rank() == 0) {
    std::printf("%-10s %9zu %9.2f %9.2f %9.2f\n", how.name, bytes, times[rounds / 2], times[rounds / 10],
                times[rounds - rounds / 10]);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int count, char** arguments) {
  std::vector<std::size_t> sizes;
  for (int index = 1; index < count; ++index) {
    sizes.push_back(std::strtoull(arguments[index], nullptr, 10));
  }
  if (sizes.empty()) {
    sizes = {8, 1024, 4096, 16384, 65536, 262144};
  }
  std::printf("%-10s %9s %9s %9s %9s\n", "way", "bytes", "median", "p10", "p90");
  std::fflush(stdout);
  return hfcomm::launch(2, [&] {
    for (const std::size_t bytes : sizes) {
      for (const way& how : ways) {
        measure(how, bytes);
      }
    }
  });
}
