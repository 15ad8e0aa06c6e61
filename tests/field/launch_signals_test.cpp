// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>

#include <unistd.h>
#include <csignal>

#include <hfcomm/comm.hpp>
#include <hfcomm/machine/shared_segment.hpp>

#include "../multi_rank/ranks.hpp"
#include "../process/processes.hpp"

namespace {

using multi_rank::wait_until;
using processes::count_of;
using processes::report;

/// State that the ranks of a job share with the test.
struct shared_state {
  std::atomic<int> ready{0};
};

std::shared_ptr<shared_state> make_shared_state() {
  auto memory = hfcomm::rendezvous::shared_segment::anonymous(sizeof(shared_state));
  auto* const state = ::new (memory->data()) shared_state;
  return {std::move(memory), state};
}

volatile std::sig_atomic_t last_signal = 0;
volatile std::sig_atomic_t signal_count = 0;
void note_signal(int signal) {
  last_signal = signal;
  signal_count = signal_count + 1;
}

/// Runs a job of two ranks, in a process of its own, and has `disturb` send that process signals when both are ready.
/// Reports what launch returns.
processes::outcome run_job(const std::function<void()>& before, const std::function<int(shared_state&)>& rank_main,
                           const std::function<void(const processes::child_processes&, shared_state&)>& disturb,
                           hfcomm::launch_options options = {}) {
  const auto state = make_shared_state();
  options.processes = 2;
  processes::child_processes parent(1, [&](int) {
    ::dup2(processes::report_pipe(), STDERR_FILENO);
    // nohup and a shell's `&` leave some of them ignored.
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
      ::signal(signal, SIG_DFL);
    }
    before();
    const int status = hfcomm::launch(options, [&] {
      const int result = rank_main(*state);
      report("rank " + std::to_string(hfcomm::rank()) + " ends");
      return result;
    });
    report("launch returned " + std::to_string(status));
  });
  wait_until([&] { return state->ready.load() == 2; });
  disturb(parent, *state);
  return parent.wait(std::chrono::seconds(60)).front();
}

TEST_CASE("launch and signals: SIGTERM reaches the ranks, and launch waits for their checkpoints") {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    for (const bool is_set_before : {false, true}) {
      const auto done = run_job(
          [&] {
            if (is_set_before) {
              ::signal(signal, note_signal);
            }
          },
          [&](shared_state& state) {
            if (!is_set_before) {
              ::signal(signal, note_signal);
            }
            ++state.ready;
            wait_until([] { return signal_count > 0; });
            std::this_thread::sleep_for(std::chrono::milliseconds(hfcomm::rank() == 0 ? 10 : 300));
            hfcomm::barrier();
            report("saved after " + std::to_string(last_signal));
            return 0;
          },
          [&](const processes::child_processes& parent, shared_state&) { parent.kill(0, signal); });
      INFO(done.output);
      CHECK(done.exited_with(0));
      CHECK(count_of(done.output, "saved after " + std::to_string(signal)) == 2);
      CHECK(count_of(done.output, "launch returned 0") == 1);
    }
  }
}

TEST_CASE("launch and signals: a rank that fails while the others save does not end them") {
  const auto done = run_job([] {},
                            [](shared_state& state) {
                              ::signal(SIGTERM, note_signal);
                              ++state.ready;
                              wait_until([] { return signal_count > 0; });
                              std::this_thread::sleep_for(std::chrono::milliseconds(hfcomm::rank() == 0 ? 0 : 2500));
                              return hfcomm::rank() == 0 ? 9 : 0;
                            },
                            [](const processes::child_processes& parent, shared_state&) { parent.kill(0, SIGTERM); });
  INFO(done.output);
  CHECK(count_of(done.output, " ends\n") == 2);
  CHECK(count_of(done.output, "launch returned 9") == 1);
}

TEST_CASE("launch and signals: SIGUSR1 and SIGUSR2 reach the ranks, and the job goes on") {
  for (const int signal : {SIGUSR1, SIGUSR2}) {
    const auto done = run_job([] {},
                              [&](shared_state& state) {
                                ::signal(signal, note_signal);
                                for (int time = 0; time < 2; ++time) {
                                  ++state.ready;
                                  wait_until([&] { return signal_count > time; });
                                }
                                hfcomm::barrier();
                                return 0;
                              },
                              [&](const processes::child_processes& parent, shared_state& state) {
                                parent.kill(0, signal);
                                wait_until([&] { return state.ready.load() == 4; });
                                parent.kill(0, signal);
                              });
    INFO(done.output);
    CHECK(count_of(done.output, " ends\n") == 2);
    CHECK(count_of(done.output, "launch returned 0") == 1);
  }
}

TEST_CASE("launch and signals: a second one, or the end of the grace, ends ranks that do not end themselves") {
  for (const bool has_grace : {false, true}) {
    hfcomm::launch_options options;
    if (has_grace) {
      options.grace = std::chrono::milliseconds(100);
    }
    const auto done = run_job([] {},
                              [](shared_state& state) {
                                ::signal(SIGTERM, note_signal);
                                ++state.ready;
                                wait_until([] { return signal_count > 0; });
                                ++state.ready;
                                wait_until([] { return false; });
                                return 0;
                              },
                              [&](const processes::child_processes& parent, shared_state& state) {
                                parent.kill(0, SIGTERM);
                                if (!has_grace) {
                                  wait_until([&] { return state.ready.load() == 4; });
                                  std::this_thread::sleep_for(std::chrono::milliseconds(150));
                                  parent.kill(0, SIGTERM);
                                }
                              },
                              options);
    INFO(done.output);
    CHECK(count_of(done.output, " ends\n") == 0);
    CHECK(count_of(done.output, "2 ranks were stopped, which still ran after signal 15 (SIGTERM)") == 1);
    CHECK(count_of(done.output, "launch returned 143") == 1);
  }
}

TEST_CASE("launch and signals: without handlers the ranks die of it, and launch says so") {
  const auto done = run_job([] {},
                            [](shared_state& state) {
                              ++state.ready;
                              wait_until([] { return false; });
                              return 0;
                            },
                            [](const processes::child_processes& parent, shared_state&) { parent.kill(0, SIGTERM); });
  INFO(done.output);
  CHECK(count_of(done.output, "was killed by signal 15 (SIGTERM)") == 1);
  CHECK(count_of(done.output, "launch returned 143") == 1);
}

TEST_CASE("launch and signals: what the process ignored stays ignored, and its handlers come back") {
  const auto done = run_job(
      [] {
        ::signal(SIGHUP, SIG_IGN);
        ::signal(SIGUSR1, note_signal);
      },
      [](shared_state& state) {
        ::signal(SIGHUP, note_signal);  // nothing is to be passed on
        ++state.ready;
        wait_until([&] { return state.ready.load() == 3; });
        return static_cast<int>(signal_count);
      },
      [](const processes::child_processes& parent, shared_state& state) {
        parent.kill(0, SIGHUP);
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        ++state.ready;
      });
  INFO(done.output);
  CHECK(count_of(done.output, "launch returned 0") == 1);
  ::signal(SIGUSR1, note_signal);
  CHECK(hfcomm::launch(2, [] {}) == 0);
  signal_count = 0;
  ::raise(SIGUSR1);
  CHECK(signal_count == 1);
  ::signal(SIGUSR1, SIG_DFL);
}

}  // namespace
