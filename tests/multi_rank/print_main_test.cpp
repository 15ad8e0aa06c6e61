// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <array>
#include <cstdio>
#include <iomanip>
#include <iostream>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <hfcomm/scopes/print_main.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// Replaces standard output during its lifetime.
class other_stdout {
 public:
  explicit other_stdout(int replacement) : kept_(::dup(STDOUT_FILENO)) {
    std::cout.flush();
    std::fflush(stdout);
    REQUIRE(kept_ >= 0);
    REQUIRE(::dup2(replacement, STDOUT_FILENO) >= 0);
    ::close(replacement);
  }
  other_stdout(const other_stdout&) = delete;
  other_stdout& operator=(const other_stdout&) = delete;
  ~other_stdout() {
    std::cout.flush();
    std::fflush(stdout);
    ::dup2(kept_, STDOUT_FILENO);
    ::close(kept_);
  }

 private:
  int kept_;
};

/// Returns the texts that `body` wrote to standard output, one for each write: a socket that keeps message boundaries
/// takes its place.
template <class Body>
std::vector<std::string> writes_of(Body body) {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0);
  {
    const other_stdout captured(ends[1]);
    body();
  }
  std::vector<std::string> writes;
  std::string message(1 << 18, '\0');
  for (::ssize_t size = 0; (size = ::recv(ends[0], message.data(), message.size(), 0)) > 0;) {
    writes.push_back(message.substr(0, static_cast<std::size_t>(size)));
  }
  ::close(ends[0]);
  return writes;
}

TEST_CASE("print_main: rank 0 prints one line in one write") {
  for (const int ranks : rank_counts) {
    const auto writes = writes_of([&] {
      run_noted(ranks, {}, [](const process_group& world) {
        print_main("epoch ", 3, ": loss ", std::setprecision(3), 0.123456, ' ', 'x');
        print_main();
        barrier();
        // In a group that is turned around, the world's last rank is rank 0.
        print_main(world.split(0, -world.rank()), "from rank ", world.rank());
        barrier();
        print_main(world, "from rank ", world.rank());
      });
    });
    CHECK((writes == std::vector<std::string>{"epoch 3: loss 0.123 x\n", "\n",
                                              "from rank " + std::to_string(ranks - 1) + '\n', "from rank 0\n"}));
  }
}

TEST_CASE("print_main: a long line is one write too") {
  const std::string text = text_of(0, 100'000);
  CHECK((writes_of([&] { print_main(text); }) == std::vector{text + '\n'}));
}

TEST_CASE("print_main: text printed before appears before") {
  std::string all;
  for (const auto& write : writes_of([] {
         std::printf("one ");
         print_main("two");
         std::cout << "three ";
         print_main("four");
         std::printf("five ");
       })) {
    all += write;
  }
  CHECK(all == "one two\nthree four\nfive ");
}

TEST_CASE("print_main: nothing is lost when a pipe is full for a while") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0);
  const std::string text = text_of(0, 1'000'000);
  std::string arrived;
  {
    std::jthread reader;
    {
      const other_stdout captured(ends[1]);
      reader = std::jthread([&] {
        std::array<char, 4096> piece{};
        while (true) {
          const ::ssize_t size = ::read(ends[0], piece.data(), piece.size());
          if (size == 0) {
            break;
          }
          if (size > 0) {
            arrived.append(piece.data(), static_cast<std::size_t>(size));
          } else {
            std::this_thread::yield();
          }
        }
      });
      print_main(text);
    }
  }
  ::close(ends[0]);
  CHECK((arrived == text + '\n'));
}

TEST_CASE("print_main: a standard output that cannot be written is an engine_error of rank 0") {
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  if (full < 0) {
    std::fputs("[hfcomm] skipped: print_main: a standard output that cannot be written: there is no /dev/full\n",
               stderr);
    return;
  }
  std::string problem;
  {
    const other_stdout captured(full);
    run_ranks(2, [&](const process_group& world) {
      if (world.rank() == 1) {
        print_main("not here");
      } else {
        try {
          print_main("lost");
        } catch (const engine_error& error) {
          problem = error.what();
        }
      }
    });
  }
  CHECK_CONTAINS(problem, "rank 0/2: print_main");
  CHECK_CONTAINS(problem, "No space left on device");
}

}  // namespace
