// SPDX-License-Identifier: MIT
// Rank 0 has tasks of very different lengths; the other ranks ask for one whenever they are free.
//
//   work_queue --processes 4
//
// test: --processes 3

#include <cstdio>
#include <map>
#include <optional>
#include <vector>

#include <hfcomm/comm.hpp>

#include "command_line.hpp"

namespace {

/// The numbers of one range that are prime.
struct task {
  int first = 0;
  int last = 0;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(first, last);
  }
};
struct report {
  std::optional<task> done;  // nothing in a rank's first one
  std::vector<int> primes;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(done, primes);
  }
};

std::vector<int> primes_of(const task& one) {
  std::vector<int> primes;
  for (int number = one.first; number < one.last; ++number) {
    bool prime = number > 1;
    for (int divisor = 2; prime && divisor * divisor <= number; ++divisor) {
      prime = number % divisor != 0;
    }
    if (prime) {
      primes.push_back(number);
    }
  }
  return primes;
}

void run_master() {
  constexpr int tasks = 40;
  std::map<int, std::vector<int>> found;  // by the task's first number
  int next = 0;
  int busy = hfcomm::world_size() - 1;
  while (busy > 0) {
    auto [told, worker] = hfcomm::recv<report>(hfcomm::any_source);
    if (told.done) {
      found[told.done->first] = std::move(told.primes);
    }
    std::optional<task> one;
    if (next < tasks) {
      one = task{next * next * 100, (next + 1) * (next + 1) * 100};
      ++next;
    } else {
      --busy;
    }
    hfcomm::send(one, worker);
  }
  std::size_t count = 0;
  for (const auto& [first, primes] : found) {
    count += primes.size();
  }
  std::printf("%zu primes below %d, found by %d ranks\n", count, tasks * tasks * 100, hfcomm::world_size() - 1);
}

void run_worker() {
  report told;
  while (true) {
    hfcomm::send(told, 0);
    const auto one = hfcomm::recv<std::optional<task>>(0);
    if (!one) {
      return;
    }
    told = {one, primes_of(*one)};
  }
}

void serve_tasks() {
  if (hfcomm::is_main_process()) {
    run_master();
  } else {
    run_worker();
  }
}

}  // namespace

int main(int count, char** arguments) {
  int processes = 3;
  examples::command_line options("work_queue");
  options.add("--processes N", "ranks to start on this machine, one of which only serves the others (default 3)",
              processes, 2);
  return options.run(count, arguments, [&] { return hfcomm::launch(processes, serve_tasks); });
}
