// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <hfcomm/engine/shared_memory/ways.hpp>
#include <hfcomm/group/tuning.hpp>

#include "../single_copies.hpp"
#include "processes.hpp"

using namespace hfcomm;

namespace {

/// Exchanges long equal parts, uneven parts and objects, each twice.
void exchange_long_parts() {
  const auto ranks = static_cast<std::size_t>(world_size());
  const auto me = static_cast<std::size_t>(rank());
  const auto require = [](bool right, const char* what) {
    if (!right) {
      throw std::runtime_error(std::string("wrong: ") + what);
    }
  };
  const std::size_t count = 70'001;  // as long as is read in place on any machine
  for (int round = 0; round < 2; ++round) {
    const auto value = [&](std::size_t from, std::size_t to) { return static_cast<int>(from * 10 + to) + 100 * round; };
    std::vector<int> in;
    std::vector<int> expected;
    std::vector<std::size_t> in_counts;
    std::vector<std::size_t> out_counts;
    std::vector<std::vector<int>> lists;
    for (std::size_t other = 0; other < ranks; ++other) {
      in.resize(in.size() + count, value(me, other));
      expected.resize(expected.size() + count, value(other, me));
      lists.emplace_back(other == 0 ? 3 : count, value(me, other));
    }
    std::vector<int> out(in.size());
    all_to_all(in, out);
    require(out == expected, "equal parts");

    in.clear();
    expected.clear();
    for (std::size_t other = 0; other < ranks; ++other) {
      in_counts.push_back(me == 0 ? count : other);
      out_counts.push_back(other == 0 ? count : me);
      in.resize(in.size() + in_counts.back(), value(me, other));
      expected.resize(expected.size() + out_counts.back(), value(other, me));
    }
    out.assign(expected.size(), -1);
    all_to_all(in, in_counts, out, out_counts);
    require(out == expected, "uneven parts");

    const auto got = all_to_all(lists);
    for (std::size_t from = 0; from < ranks; ++from) {
      require(got[from] == std::vector<int>(me == 0 ? 3 : count, value(from, me)), "objects");
    }
  }
}

/// Makes this process readable for its siblings only: root could read everything, and Yama forbids siblings.
void become_readable() {
  if (::geteuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0)) {
    throw std::runtime_error("the test could not become nobody");
  }
  ::prctl(PR_SET_DUMPABLE, 1);
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
}

/// Runs three ranks: `prepare`, then the exchanges. `expected` is the number of operations without slots: of two of
/// each kind, the first one of equal parts goes through slots, because the ranks agree in it.
void run(const std::string& name, const std::function<void()>& prepare, const std::string& expected) {
  constexpr int ranks = 3;
  const std::string job = processes::unique_name(name);
  processes::child_processes children(ranks, [&](int rank) {
    become_readable();
    engines::tuning_table::of_process().reset(engines::tuning_mode::off);
    session own = init(processes::job_options(job, rank, ranks));
    barrier();
    prepare();
    exchange_long_parts();
    barrier();
    processes::report(std::to_string(single_copies(world())));
  });
  for (const auto& outcome : children.wait(std::chrono::seconds(60))) {
    CHECK(outcome.exited_with(0));
    CHECK(outcome.output == expected);
  }
}

/// Whether a process that is not root may read its sibling's memory here.
bool siblings_can_read() {
  int word = 7;
  processes::child_processes target(1, [&](int) {
    become_readable();
    std::this_thread::sleep_for(std::chrono::seconds(1));
  });
  processes::child_processes reader(1, [&](int) {
    become_readable();
    int found = 0;
    iovec local{&found, sizeof(found)};
    iovec remote{&word, sizeof(word)};
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    processes::report(::process_vm_readv(target.pid(0), &local, 1, &remote, 1, 0) == sizeof(found) ? "yes" : "no");
  });
  const bool reads = reader.wait(std::chrono::seconds(10)).front().output == "yes\n";
  target.wait(std::chrono::seconds(10));
  return reads;
}

}  // namespace

TEST_CASE("single copy: processes get the same results with and without it") {
  if (!siblings_can_read()) {
    std::puts(
        "[hfcomm] skipped: single copy: processes get the same results: no process may read its sibling's memory here");
    return;
  }
  run("single-copy", [] {}, "5\n");
  run(
      "single-copy-not-rank-1",
      [] {
        if (rank() == 1) {
          ::setenv("HFCOMM_SINGLE_COPY", "0", 1);
        }
      },
      "0\n");
  run("no-single-copy", [] { ::setenv("HFCOMM_SINGLE_COPY", "0", 1); }, "0\n");
}

TEST_CASE("single copy: a rank whose memory becomes unreadable gets correct results") {
  if (!siblings_can_read()) {
    std::puts(
        "[hfcomm] skipped: single copy: a rank whose memory becomes unreadable: no process may read its sibling's "
        "memory here");
    return;
  }
  run(
      "single-copy-no-more",
      [] {
        exchange_long_parts();
        if (rank() == 1) {
          ::prctl(PR_SET_DUMPABLE, 0);
        }
      },
      "5\n");
}

TEST_CASE("single copy: reductions in place by the kernel stay right where a rank's memory becomes unreadable") {
  if (!siblings_can_read()) {
    std::puts("[hfcomm] skipped: single copy: reductions in place: no process may read its sibling's memory here");
    return;
  }
  constexpr int ranks = 3;
  constexpr std::size_t count = 60'000;
  const std::string table = processes::unique_name("single-copy-table");
  {
    std::ofstream file(table);
    for (const char* cores : {"own", "shared"}) {
      for (const char* operation : {"all_reduce", "broadcast", "all_gather", "gather"}) {
        file << operation << " 131072 3 " << cores << " kernel 32768 1\n";
      }
      file << "reduce_scatter 524288 3 " << cores << " kernel 32768 1\n";
    }
  }
  const std::string job = processes::unique_name("single-copy-reductions");
  processes::child_processes children(ranks, [&](int rank) {
    become_readable();
    load_tuning(table);
    session own = init(processes::job_options(job, rank, ranks));
    barrier();
    std::string copies;
    for (int call = 0; call < 6; ++call) {
      if (call == 3 && rank == 1) {
        ::prctl(PR_SET_DUMPABLE, 0);
      }
      std::vector<int> data(count, rank + call);
      all_reduce(data);
      std::vector<int> sums(3 * count, rank + call);
      std::vector<int> part(count, -1);
      reduce_scatter(sums, part);
      std::vector<int> sent(count, rank == 1 ? call : -1);
      broadcast(std::span(sent), 1);
      std::vector<int> all(3 * count, -1);
      all_gather(std::vector<int>(count, rank + call), all);
      std::vector<int> gathered(3 * count, -1);
      gather(std::vector<int>(count, rank + call), gathered);
      const int sum = 3 * call + 3;
      if (data != std::vector<int>(count, sum) || part != std::vector<int>(count, sum) ||
          sent != std::vector<int>(count, call) || all.front() != call || all.back() != 2 + call ||
          (rank == 0 && gathered != all)) {
        throw std::runtime_error("wrong in call " + std::to_string(call));
      }
      copies += " " + std::to_string(single_copies(world()));
    }
    processes::report(copies);
  });
  for (const auto& outcome : children.wait(std::chrono::seconds(60))) {
    CHECK(outcome.exited_with(0));
    CHECK(outcome.output == " 0 5 10 10 10 10\n");
  }
  std::remove(table.c_str());
}
