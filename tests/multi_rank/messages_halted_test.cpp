// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <atomic>
#include <csignal>
#include <memory>

#include <pthread.h>

#include <hfcomm/collectives/send_receive.hpp>
#include <hfcomm/engine/transfer.hpp>
#include <hfcomm/group/detail/group_state.hpp>
#include <hfcomm/machine/waiting.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;
using hfcomm::engines::transfer;

/// How often the reader was halted and resumed.
std::atomic<int> halts{0};
std::atomic<int> releases{0};
static_assert(std::atomic<int>::is_always_lock_free);

constexpr detail::spin_limits for_a_while{.spin = std::chrono::milliseconds(20)};

/// Halts the thread until it is resumed, at most for a while: it may hold a lock of the allocator.
void halt(int /*signal*/) {
  const int number = halts.fetch_add(1) + 1;
  detail::wait_briefly(for_a_while, [number] { return releases.load() >= number; });
}

/// While this lives, SIGUSR1 halts the thread that gets it.
class halting {
 public:
  halting() {
    struct sigaction action{};
    action.sa_handler = halt;
    ::sigaction(SIGUSR1, &action, &before_);
  }
  halting(const halting&) = delete;
  halting& operator=(const halting&) = delete;
  ~halting() { ::sigaction(SIGUSR1, &before_, nullptr); }

 private:
  struct sigaction before_{};
};

constexpr int rounds = 1000;
constexpr int wanted = 1;
constexpr int other = 2;

using message_ptr = std::shared_ptr<engines::transfer>;

/// Starts a message that only the calling thread advances, so that halting this thread halts the message.
message_ptr start_send(int value, int destination, const process_group& world, int tag) {
  auto message = detail::outgoing_object("send", value, destination, detail::allowed_peer::any_rank, world, tag,
                                         std::source_location::current());
  detail::group_access::engine(world).post({&message, 1});
  return message;
}
message_ptr start_recv(int source, const process_group& world, int tag) {
  auto message = detail::incoming_object<int>("recv", source, detail::allowed_peer::any_rank, world, tag,
                                              std::source_location::current());
  detail::group_access::engine(world).post({&message, 1});
  return message;
}
void finish(const message_ptr& message, const process_group& world) {
  detail::group_access::engine(world).complete({&message, 1});
  REQUIRE_FALSE(message->problem);
}

/// Rank 1 receives messages from rank 0 and polls for them all the time. In each round `step` runs on rank 0: it sends
/// the next message, calls `halt_reader`, which halts rank 1 at any point, and returns the message. The last argument
/// of `step` is the receiver's side of the message.
template <class Step>
void run_rounds(Step step) {
  const halting while_this_lasts;
  halts = 0;
  releases = 0;
  std::atomic<bool> over{false};
  std::atomic<pthread_t> reader{};
  std::vector<message_ptr> coming(rounds);
  run_noted(2, {}, [&](const process_group& world) {
    if (world.rank() == 1) {
      reader = ::pthread_self();
      for (auto& one : coming) {
        one = start_recv(0, world, wanted);
      }
      barrier(world);
      while (!over) {
        const int same = send_receive(7, 1, 1, world, other);  // each step polls for every posted receive
        CHECK(same == 7);
      }
      for (int round = 0; round < rounds; ++round) {
        finish(coming[as_index(round)], world);
        CHECK(detail::take_object<int>(world, *coming[as_index(round)]).value == round);
      }
    } else {
      barrier(world);
      for (int round = 0; round < rounds; ++round) {
        const auto halt_reader = [&] {
          ::pthread_kill(reader, SIGUSR1);
          detail::wait_briefly(for_a_while, [round] { return halts.load() > round; });
        };
        const message_ptr message = step(world, round, halt_reader, *coming[as_index(round)]);
        releases.fetch_add(1);
        finish(message, world);
      }
      over = true;
    }
    check_usable(world);
  });
  CHECK(halts.load() > 0);
}

TEST_CASE("halted rank: a reader of a message does not mistake the next but one for it") {
  run_rounds([](const process_group& world, int round, const auto& halt_reader, const engines::transfer& /*theirs*/) {
    const auto first = start_send(-1, 0, world, other);
    halt_reader();
    const auto taken = start_recv(0, world, other);
    finish(taken, world);
    finish(first, world);
    CHECK(send_receive(-1, 0, 0, world, other) == -1);  // in the same envelope, as are the next messages
    return start_send(round, 1, world, wanted);
  });
}

TEST_CASE("halted rank: a receiver that claimed a message does not mistake another for it") {
  run_rounds([](const process_group& world, int round, const auto& halt_reader, const engines::transfer& theirs) {
    auto message = start_send(round, 1, world, wanted);
    wait_until([&] { return theirs.finished.load(); });
    halt_reader();
    finish(message, world);
    CHECK(send_receive(-1, 0, 0, world, wanted) == -1);  // with the same tag, in the same envelope
    return message;
  });
}

}  // namespace

TEST_CASE("messages: the first message of a group whose waits have been cancelled fails at once") {
  testing::run_ranks(2, [](const process_group& world) {
    const process_group group = world.split(0, world.rank());
    detail::group_access::engine(group).cancel();
    const auto problem = error_of<engine_error>([&] { (void)recv<int>(1 - group.rank(), group); });
    CHECK_CONTAINS(problem.what(), "cancelled");
    check_usable(world);
  });
}
