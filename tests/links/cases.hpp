// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <sys/eventfd.h>
#include <unistd.h>

#include "links/machines.hpp"

/// Promises of every link. Each function is one machine's part.
namespace machines::cases {

/// Several transfers of each channel arrive in their order, at each machine from each other one.
inline void order(machine& here) {
  constexpr std::array<std::size_t, 5> lengths{1, 8, 4000, 70'000, 3};
  constexpr std::uint32_t last_channel = (1u << 20) - 1;
  transfers all(here);
  std::vector<std::uint64_t> seeds;
  for (int other = 0; other < here.count; ++other) {
    for (const std::uint32_t channel : {0u, 7u, last_channel}) {
      for (std::uint64_t number = 0; number < 20 && other != here.self; ++number) {
        const std::size_t length = lengths[number % lengths.size()];
        const auto seed = [&](int sender) {
          return number * 1000 + channel % 999 + 10u * static_cast<unsigned>(sender);
        };
        all.send(other, channel, filled(length, seed(here.self)));
        seeds.push_back(0);
        all.receive(other, channel, length);
        seeds.push_back(seed(other));
      }
    }
  }
  all.finish();
  for (std::size_t index = 0; index < all.size(); ++index) {
    expect(all[index].sends || all.memory(index) == filled(all.memory(index).size(), seeds[index]),
           "transfer " + std::to_string(index) + " has the bytes that were sent");
  }
  here.barrier_of_working();
}

/// Lengths from 1 byte to 64 MiB, both ways at once, receives posted by turns before and after the data arrives.
inline void sizes(machine& here) {
  constexpr std::size_t piece = 512 << 10;
  const int other = 1 - here.self;
  std::uint64_t number = 0;
  for (const std::size_t length : {std::size_t{1}, std::size_t{7}, std::size_t{4096}, std::size_t{65536}, piece - 1,
                                   piece, piece + 1, 3 * piece, std::size_t{5'000'001}, std::size_t{64} << 20}) {
    const bool receives_first = (++number + static_cast<unsigned>(here.self)) % 2 == 0;
    transfers all(here);
    std::size_t received = 0;
    if (receives_first) {
      all.receive(other, 1, length);
      all.send(other, 1, filled(length, number * 2 + static_cast<unsigned>(here.self)));
    } else {
      all.send(other, 1, filled(length, number * 2 + static_cast<unsigned>(here.self)));
      work(here, 30ms);
      all.receive(other, 1, length);
      received = 1;
    }
    all.finish();
    expect(all.memory(received) == filled(length, number * 2 + static_cast<unsigned>(other)),
           std::to_string(length) + " bytes arrive as they were sent");
  }
  here.barrier_of_working();
}

/// Hundreds of transfers under way at once, on many channels in both directions.
inline void many(machine& here) {
  for (std::uint64_t round = 0; round < 3; ++round) {
    transfers all(here);
    for (std::uint32_t number = 0; number < 16; ++number) {
      for (std::uint32_t channel = 0; channel < 16; ++channel) {
        const std::size_t length = 1 + (number * 7919 + channel * 104'729) % 60'000;
        for (int other = 0; other < here.count; ++other) {
          if (other != here.self) {
            all.send(other, channel, filled(length, channel + number * 100 + static_cast<unsigned>(here.self)));
            all.receive(other, channel, length);
          }
        }
      }
    }
    all.finish();
    for (std::size_t index = 0; index < all.size(); ++index) {
      const auto& one = all[index];
      const auto number = index / (32 * static_cast<std::size_t>(here.count - 1));
      expect(one.sends || all.memory(index) ==
                              filled(one.bytes.size(), one.channel + number * 100 + static_cast<unsigned>(one.machine)),
             "transfer " + std::to_string(index) + " has the bytes that were sent");
    }
  }
  here.barrier_of_working();
}

/// `sleep` ends with the descriptor, which it does not read, and with data; otherwise it sleeps.
inline void sleep(machine& here) {
  const int other = 1 - here.self;
  transfers connect(here);
  connect.send(other, 1, filled(1, 0));
  connect.receive(other, 1, 1);
  connect.finish();
  here.barrier_of_working();
  if (here.self == 0) {
    transfers all(here);
    all.receive(1, 2, 100);
    const auto began = clock::now();
    int sleeps = 0;
    while (!all.are_done() && clock::now() - began < 5s) {
      if (!here.carrier->progress() && here.carrier->prepare_sleep()) {
        here.carrier->sleep(-1, 5s);
        ++sleeps;
      }
    }
    all.finish();
    expect(clock::now() - began < 2s, "data ends the sleep");
    expect(sleeps < 3000, "it slept, instead of " + std::to_string(sleeps) + " returns in 300 ms");

    const int descriptor = ::eventfd(0, EFD_CLOEXEC);
    std::jthread waker([&] {
      std::this_thread::sleep_for(100ms);
      const std::uint64_t one = 1;
      expect(::write(descriptor, &one, sizeof(one)) == sizeof(one), "the descriptor can be written");
    });
    const auto slept = clock::now();
    std::uint64_t value = 0;
    ::pollfd event{descriptor, POLLIN, 0};
    sleeps = 0;
    while (::poll(&event, 1, 0) == 0 && clock::now() - slept < 5s) {
      if (!here.carrier->progress() && here.carrier->prepare_sleep()) {
        here.carrier->sleep(descriptor, 5s);
        ++sleeps;
      }
    }
    expect(clock::now() - slept < 2s, "the descriptor ends the sleep");
    expect(sleeps < 3000, "it slept until the descriptor was readable");
    expect(::read(descriptor, &value, sizeof(value)) == sizeof(value) && value == 1, "the descriptor was not read");
    ::close(descriptor);

    const auto timed = clock::now();
    while (clock::now() - timed < 100ms) {
      if (!here.carrier->progress() && here.carrier->prepare_sleep()) {
        here.carrier->sleep(-1, 50ms);
      }
    }
    expect(clock::now() - timed < 2s, "the time ends the sleep");
  } else {
    std::this_thread::sleep_for(300ms);
    transfers all(here);
    all.send(0, 2, filled(100, 1));
    all.finish();
  }
  here.barrier_of_working();
}

/// A transfer of another length than the receiver expects fails there.
inline void lengths(machine& here) {
  transfers all(here);
  if (here.self == 0) {
    all.send(1, 1, filled(100, 1));
    all.send(1, 2, filled(50, 1));
    all.finish();
  } else {
    all.receive(0, 1, 50);
    all.receive(0, 2, 100);
    for (const auto end = clock::now() + 10s; !all.are_done() && clock::now() < end;) {
      work(here, 5ms);
    }
    expect(all.are_done() && all[0].failed && all[1].failed, "transfers of other lengths failed");
  }
  here.barrier_of_working();
}

/// A send that is done arrives, although the sender has nothing more to send, and the receiver began to read late.
inline void idle_sender(machine& here, std::size_t length) {
  transfers connect(here);
  connect.send(1 - here.self, 1, filled(1, 0));
  connect.receive(1 - here.self, 1, 1);
  connect.finish();
  here.barrier();
  transfers all(here);
  auto& sent = here.together.number;
  if (here.self == 0) {
    const std::size_t most = 1'000'000'000 / (length + 10'000);
    for (auto end = clock::now() + 100ms; clock::now() < end && all.size() < most;) {
      const bool goes = all.send(1, 2, filled(length, all.size())).done;
      for (auto last = clock::now() + 20ms; !all[all.size() - 1].done && clock::now() < last;) {
        here.carrier->progress();
      }
      if (goes || all[all.size() - 1].done) {
        end = clock::now() + 100ms;
        ++sent;
      } else {
        break;
      }
    }
    here.barrier();
    for (const auto end = clock::now() + 20s; sent != 0 && clock::now() < end;) {
      work(here, 5ms);
    }
  } else {
    here.barrier();
    for (std::size_t index = 0; index < sent; ++index) {
      all.receive(0, 2, length);
    }
    all.finish(10s);
    for (std::size_t index = 0; index < all.size(); ++index) {
      expect(all.memory(index) == filled(length, index), "the bytes arrived");
    }
    sent = 0;
  }
  here.barrier();
}

inline void idle_sender_small(machine& here) { idle_sender(here, 100); }
inline void idle_sender_medium(machine& here) { idle_sender(here, 5000); }
inline void idle_sender_large(machine& here) { idle_sender(here, 700'000); }

/// How machine 1 is lost.
enum class loss { killed, stopped, ended };

/// Machine 1 is lost while it has transfers under way in both directions with machine 0. Machine 0 gives it up; nothing
/// touches the memory of those transfers afterwards, and machine 0 and machine 2 go on.
inline void give_up(machine& here, loss how) {
  constexpr std::size_t length = 8 << 20;
  // UCX 1.13 ends a machine by an assertion where the other one gives it up while they connect.
  if (here.self < 2) {
    transfers connect(here);
    connect.send(1 - here.self, 9, filled(1, 0));
    connect.receive(1 - here.self, 9, 1);
    connect.finish();
  }
  here.barrier();
  if (here.self == 1) {
    transfers all(here);
    for (std::uint32_t channel = 0; channel < 4; ++channel) {
      all.send(0, channel, filled(length, channel));
      all.receive(0, channel, length);
    }
    work(here, 15ms);
    here.barrier();
    if (how == loss::killed && !here.is_thread) {
      ::raise(SIGKILL);
    } else if (how == loss::stopped && !here.is_thread) {
      ::raise(SIGSTOP);  // machine 0 lets it go on later
      work(here, 100ms);
    }
    return;  // its link gives up
  }
  std::optional<transfers> with_lost(here);
  if (here.self == 0) {
    for (std::uint32_t channel = 0; channel < 5; ++channel) {
      with_lost->send(1, channel, filled(length, channel));
      with_lost->receive(1, channel, length);
    }
    work(here, 15ms);
  }
  here.barrier();
  if (here.self == 0) {
    work(here, 150ms);
    if (how == loss::killed && !here.is_thread) {
      for (const auto end = clock::now() + 5s; here.carrier->failing_machine() != 1 && clock::now() < end;) {
        work(here, 5ms);
      }
      expect(here.carrier->failing_machine() == 1, "the link tells of a dead machine");
    }
    expect(!with_lost->are_done() || with_lost->has_failed(), "not everything has been transferred");
    const auto began = clock::now();
    here.carrier->give_up(1);
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() - began);
    expect(took < 1s, "give_up is quick, instead of " + std::to_string(took.count()) + " ms");
    expect(with_lost->are_done() && with_lost->has_failed(), "what was under way is done and failed");
    for (std::size_t index = 0; index < with_lost->size(); ++index) {
      std::ranges::fill(with_lost->memory(index), std::byte{0xAB});
    }
    here.signal(1, how == loss::stopped ? SIGCONT : 0);
  }
  if (here.self == 0) {
    work(here, 300ms);
    for (std::size_t index = 0; index < with_lost->size(); ++index) {
      expect(with_lost->memory(index) == std::vector(length, std::byte{0xAB}),
             "memory of given up transfers is not touched");
    }
    transfers later(here);
    later.send(1, 9, filled(10, 1));
    later.receive(1, 9, 10);
    expect(later.are_done() && later[0].failed && later[1].failed, "later transfers fail at once");
    expect(here.carrier->failing_machine() == -1, "a machine that was given up is no news");
  }
  here.barrier(1);
  transfers others(here);
  const int other = 2 - here.self;
  others.send(other, 1, filled(3 << 20, 1));
  others.receive(other, 1, 3 << 20);
  others.finish();
  expect(others.memory(1) == filled(3 << 20, 1), "the other machines go on");
  here.barrier(1);
}

inline void give_up_killed(machine& here) { give_up(here, loss::killed); }
inline void give_up_stopped(machine& here) { give_up(here, loss::stopped); }
inline void give_up_ended(machine& here) { give_up(here, loss::ended); }

/// Sends to a machine that is dead, without the link having had a chance to notice, fail or are given up.
inline void send_to_dead(machine& here) {
  transfers connect(here);
  connect.send(1 - here.self, 1, filled(1, 0));
  connect.receive(1 - here.self, 1, 1);
  connect.finish();
  here.barrier();
  if (here.self == 1) {
    if (!here.is_thread) {
      ::raise(SIGKILL);
    }
    return;
  }
  std::this_thread::sleep_for(100ms);
  transfers all(here);
  for (std::uint32_t channel = 0; channel < 10; ++channel) {
    all.send(1, channel, filled(channel % 2 == 0 ? 100 : 100'000, channel));
    all.receive(1, channel, 100);
  }
  work(here, 50ms);
  here.carrier->give_up(1);
  expect(all.are_done(), "all transfers are done");
}

/// A link with transfers under way, to a machine that is stopped, can be destroyed at once.
inline void destroyed(machine& here) {
  constexpr std::size_t length = 8 << 20;
  transfers all(here);
  for (std::uint32_t channel = 0; channel < 3; ++channel) {
    all.send(1 - here.self, channel, filled(length, channel));
    all.receive(1 - here.self, channel, length);
  }
  all.receive(1 - here.self, 3, length);
  work(here, 10ms);
  here.barrier();
  if (here.self == 1) {
    if (!here.is_thread) {
      ::raise(SIGSTOP);
    }
    return;
  }
  std::this_thread::sleep_for(50ms);
  const auto began = clock::now();
  here.carrier.reset();
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() - began);
  expect(took < 1s, "the destructor is quick, instead of " + std::to_string(took.count()) + " ms");
  expect(all.are_done() && all.has_failed(), "what was under way is done and failed");
  here.signal(1, SIGCONT);
}

/// Everything that was sent arrives, although the sender destroys its link as soon as its sends are done.
inline void delivered(machine& here) {
  transfers all(here);
  if (here.self == 0) {
    for (std::uint32_t channel = 0; channel < 20; ++channel) {
      all.send(1, channel, filled(20'000, channel));
    }
    all.finish();
    here.carrier.reset();
  } else {
    for (std::uint32_t channel = 0; channel < 20; ++channel) {
      all.receive(0, channel, 20'000);
    }
    all.finish(10s);
    for (std::size_t index = 0; index < all.size(); ++index) {
      expect(all.memory(index) == filled(20'000, index), "the bytes arrived");
    }
  }
}

struct entry {
  std::string_view name;
  int machines;
  void (*each)(machine&);
};
inline constexpr std::array all{
    entry{"order", 3, &order},
    entry{"sizes", 2, &sizes},
    entry{"many", 3, &many},
    entry{"sleep", 2, &sleep},
    entry{"lengths", 2, &lengths},
    entry{"idle_sender_small", 2, &idle_sender_small},
    entry{"idle_sender_medium", 2, &idle_sender_medium},
    entry{"idle_sender_large", 2, &idle_sender_large},
    entry{"give_up_killed", 3, &give_up_killed},
    entry{"give_up_stopped", 3, &give_up_stopped},
    entry{"give_up_ended", 3, &give_up_ended},
    entry{"send_to_dead", 2, &send_to_dead},
    entry{"destroyed", 2, &destroyed},
    entry{"delivered", 2, &delivered},
};

}  // namespace machines::cases
