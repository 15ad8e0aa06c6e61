// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <array>
#include <csignal>
#include <stdexcept>
#include <string>
#include <vector>

#include <unistd.h>

#include "processes.hpp"

namespace {

using namespace hfcomm;
using namespace std::chrono_literals;

/// A pipe whose reader waits until the process that keeps the other end is gone.
class end_of_process {
 public:
  end_of_process() {
    if (::pipe(ends_.data()) != 0) {
      throw std::runtime_error("no pipe");
    }
  }
  end_of_process(const end_of_process&) = delete;
  end_of_process& operator=(const end_of_process&) = delete;
  ~end_of_process() {
    ::close(ends_[0]);
    close_writer();
  }

  /// Closes the end that only the watched process keeps.
  void close_writer() {
    if (ends_[1] >= 0) {
      ::close(ends_[1]);
      ends_[1] = -1;
    }
  }
  void wait() const {
    char byte = 0;
    if (::read(ends_[0], &byte, 1) != 0) {
      throw std::runtime_error("the pipe does not end");
    }
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

void demand(bool condition, const char* what) {
  if (!condition) {
    throw std::runtime_error(std::string("not so: ") + what);
  }
}

/// Checks that `call` throws a peer_error for the loss of `rank`.
template <class Call>
void expect_loss(int rank, Call&& call) {
  try {
    call();
  } catch (const peer_error& problem) {
    demand(problem.fatal(), "the loss is fatal");
    demand(problem.peer() == rank, "the error names the rank that is gone");
    return;
  }
  throw std::runtime_error("no peer_error");
}

/// Runs `body(gone)` on `ranks` ranks, where `gone` waits for the end of rank `watched`. All but that one must succeed.
template <class Body>
void run_job(const char* name, int ranks, int watched, Body&& body) {
  const auto before = processes::leftovers::count();
  {
    end_of_process gone;
    const std::string job = processes::unique_name(name);
    processes::child_processes children(ranks, [&](int rank) {
      if (rank != watched) {
        gone.close_writer();
      }
      auto options = processes::job_options(job, rank, ranks);
      session own = init(options);
      body(gone);
    });
    gone.close_writer();
    const auto outcomes = children.wait(20s);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto& one = outcomes[static_cast<std::size_t>(rank)];
      CHECK_MESSAGE((rank == watched || one.exited_with(0)), "rank ", rank, ": ", one.output);
    }
  }
  CHECK(processes::leftovers::count() == before);
}

/// A plain object that is too long for a cell.
std::array<char, 90> letters(int number) {
  std::array<char, 90> made{};
  made.fill(static_cast<char>('a' + number));
  return made;
}

}  // namespace

TEST_CASE("early leave: what a rank gave is there when it is killed before the others come") {
  run_job("gave-and-died", 3, 2, [](const end_of_process& gone) {
    const process_group early = world().with_early_leave();
    constexpr int calls = 20;
    if (rank() == 2) {
      for (int number = 0; number < calls; ++number) {
        (void)gather(letters(number), 0, early);
      }
      ::raise(SIGKILL);
    }
    if (rank() == 0) {
      gone.wait();
    }
    for (int number = 0; number < calls; ++number) {
      const auto all = gather(letters(number), 0, early);
      demand(rank() != 0 || all == std::vector(3, letters(number)), "all is there");
    }
    expect_loss(2, [] { barrier(); });
  });
}

TEST_CASE("early leave: a rank that ends well after it has left is no loss") {
  run_job("gave-and-ended", 2, 1, [](const end_of_process& gone) {
    const process_group early = world().with_early_leave();
    if (rank() == 0) {
      gone.wait();
    }
    for (int number = 0; number < 10; ++number) {
      const auto all = gather(number, 0, early);
      demand(rank() != 0 || all == std::vector(2, number), "all is there");
    }
    if (rank() == 0) {
      expect_loss(1, [] { barrier(); });
    }
  });
}

TEST_CASE("early leave: a root that runs ahead learns that a receiver was killed") {
  run_job("receiver-died", 3, 1, [](const end_of_process& gone) {
    const process_group early = world().with_early_leave();
    int value = 0;
    broadcast(value, 0, early);
    if (rank() == 1) {
      ::raise(SIGKILL);
    }
    gone.wait();
    expect_loss(1, [&] {
      for (int number = 0; number < 100; ++number) {
        broadcast(value, 0, early);
      }
    });
    expect_loss(1, [] { barrier(); });
  });
}
