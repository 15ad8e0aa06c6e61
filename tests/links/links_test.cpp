// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <csignal>

#include <hfcomm/engine/links/links.hpp>

#include "links/cases.hpp"
#include "links/machines.hpp"
#include "links/memory_link.hpp"
#include "process/processes.hpp"

namespace {

using namespace std::chrono_literals;
using machines::machine;
using machines::meeting;
namespace cases = machines::cases;

/// Machines as threads.
template <int delay>
struct memory_machines {
  static bool are_missing(const char* /*claim*/) { return false; }

  static void run(int count, const machines::body& each) {
    auto together = std::make_unique<meeting>();
    hfcomm::engines::memory_network network{std::chrono::microseconds(delay)};
    std::vector<std::string> problems(static_cast<std::size_t>(count));
    {
      std::vector<std::jthread> threads;
      for (int self = 0; self < count; ++self) {
        threads.emplace_back([&, self] {
          machine here{*together, self, count};
          here.is_thread = true;
          try {
            here.open(network.make_end());
            each(here);
          } catch (const std::exception& problem) {
            problems[static_cast<std::size_t>(self)] = problem.what();
            together->has_failed = true;
          }
        });
      }
    }
    CHECK(problems == std::vector<std::string>(static_cast<std::size_t>(count)));
  }
};
using memory = memory_machines<0>;
using memory_late = memory_machines<2000>;

/// Machines as processes, which reach each other over the loopback interface.
struct process_machines {
  static void run(const std::string& name, int count, const machines::body& each) {
    meeting& together = meeting::map();
    processes::child_processes children(count, [&](int self) {
      machine here{together, self, count};
      try {
        here.open(hfcomm::engines::make_link(name));
        each(here);
      } catch (...) {
        together.has_failed = true;
        throw;
      }
    });
    const auto outcomes = children.wait(60s);
    for (const auto& one : outcomes) {
      const bool ended = one.exited_with(0) || (one.killed_by(SIGKILL) && one.output.empty());
      CHECK_MESSAGE(ended, one.output);
    }
    ::munmap(&together, sizeof(meeting));
  }

  /// Prints that a case is skipped where there is no such link here.
  static bool are_missing(const char* name, const char* claim) {
    ::setenv("HFCOMM_INTERFACE", "lo", 1);
    // In a child: the libraries start threads, which no fork survives.
    processes::child_processes child(1, [&](int) { hfcomm::engines::make_link(name); });
    const auto outcome = child.wait(20s).front();
    if (!outcome.exited_with(0)) {
      std::printf("[hfcomm] skipped: %s: %s\n", claim, outcome.output.substr(0, outcome.output.find('\n')).c_str());
      return true;
    }
    return false;
  }
};
struct ucx_machines {
  static bool are_missing(const char* claim) { return process_machines::are_missing("ucx", claim); }
  static void run(int count, const machines::body& each) { process_machines::run("ucx", count, each); }
};

struct tcp_machines {
  static bool are_missing(const char* claim) { return process_machines::are_missing("tcp", claim); }
  static void run(int count, const machines::body& each) { process_machines::run("tcp", count, each); }
};

struct gloo_machines {
  static bool are_missing(const char* claim) { return process_machines::are_missing("gloo", claim); }
  static void run(int count, const machines::body& each) { process_machines::run("gloo", count, each); }
};

/// Runs a case of each kind of link.
template <class Machines>
void run(const char* claim, int count, void (*each)(machine&)) {
  if (!Machines::are_missing(claim)) {
    Machines::run(count, each);
  }
}

}  // namespace

TEST_CASE_TEMPLATE("links: transfers of one channel keep their order", Machines, memory, memory_late, ucx_machines,
                   tcp_machines, gloo_machines) {
  run<Machines>("links: transfers of one channel keep their order", 3, &cases::order);
}

TEST_CASE_TEMPLATE("links: lengths from 1 byte to 64 MiB arrive", Machines, memory, memory_late, ucx_machines,
                   tcp_machines, gloo_machines) {
  run<Machines>("links: lengths from 1 byte to 64 MiB arrive", 2, &cases::sizes);
}

TEST_CASE_TEMPLATE("links: hundreds of transfers are under way at once", Machines, memory, memory_late, ucx_machines,
                   tcp_machines, gloo_machines) {
  run<Machines>("links: hundreds of transfers are under way at once", 3, &cases::many);
}

TEST_CASE_TEMPLATE("links: sleep ends with data, and with the descriptor", Machines, memory, memory_late, ucx_machines,
                   tcp_machines, gloo_machines) {
  run<Machines>("links: sleep ends with data, and with the descriptor", 2, &cases::sleep);
}

// Not with Gloo, which throws in a thread of its own.
TEST_CASE_TEMPLATE("links: a transfer of another length fails", Machines, memory, memory_late, ucx_machines,
                   tcp_machines) {
  run<Machines>("links: a transfer of another length fails", 2, &cases::lengths);
}

TEST_CASE_TEMPLATE("links: what was sent arrives though the sender sends no more", Machines, memory, memory_late,
                   ucx_machines, tcp_machines, gloo_machines) {
  for (const auto each : {&cases::idle_sender_small, &cases::idle_sender_medium, &cases::idle_sender_large}) {
    run<Machines>("links: what was sent arrives though the sender sends no more", 2, each);
  }
}

TEST_CASE_TEMPLATE("links: a killed machine is given up, and others go on", Machines, memory, memory_late, ucx_machines,
                   tcp_machines, gloo_machines) {
  run<Machines>("links: a killed machine is given up, and others go on", 3, &cases::give_up_killed);
}

TEST_CASE_TEMPLATE("links: a stopped machine is given up, and others go on", Machines, memory, memory_late,
                   ucx_machines, tcp_machines, gloo_machines) {
  run<Machines>("links: a stopped machine is given up, and others go on", 3, &cases::give_up_stopped);
}

TEST_CASE_TEMPLATE("links: a machine that ended is given up, and others go on", Machines, memory, memory_late,
                   ucx_machines, tcp_machines, gloo_machines) {
  run<Machines>("links: a machine that ended is given up, and others go on", 3, &cases::give_up_ended);
}

TEST_CASE_TEMPLATE("links: sends to a machine that is dead end", Machines, memory, memory_late, ucx_machines,
                   tcp_machines, gloo_machines) {
  run<Machines>("links: sends to a machine that is dead end", 2, &cases::send_to_dead);
}

TEST_CASE_TEMPLATE("links: a link to a stopped machine is destroyed at once", Machines, memory, memory_late,
                   ucx_machines, tcp_machines, gloo_machines) {
  run<Machines>("links: a link to a stopped machine is destroyed at once", 2, &cases::destroyed);
}

TEST_CASE_TEMPLATE("links: what was sent arrives after the sender's end", Machines, memory, memory_late, ucx_machines,
                   tcp_machines, gloo_machines) {
  run<Machines>("links: what was sent arrives after the sender's end", 2, &cases::delivered);
}
