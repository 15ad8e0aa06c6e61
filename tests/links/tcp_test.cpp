// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/links/tcp.hpp>
#include <hfcomm/machine/shared_segment.hpp>

#include "links/machines.hpp"

namespace {

using namespace std::chrono_literals;
using hfcomm::engines::link_transfer;
using hfcomm::engines::tcp;
using hfcomm::rendezvous::unique_fd;

/// Returns where in an address the text begins, behind the link's name and the secret.
std::size_t text_begin() { return hfcomm::engines::published_name("tcp").size() + 1 + 16; }

std::string text_of(const std::vector<std::byte>& address) {
  std::string text;
  for (std::size_t place = text_begin(); place < address.size(); ++place) {
    text += static_cast<char>(address[place]);
  }
  return text;
}
std::vector<std::byte> with_text(std::vector<std::byte> address, const std::string& text) {
  address.resize(text_begin());
  for (const char one : text) {
    address.push_back(static_cast<std::byte>(one));
  }
  return address;
}

/// A transfer with its memory.
struct message {
  std::vector<std::byte> bytes;
  link_transfer one;

  message(int other, std::uint64_t channel, std::vector<std::byte> memory, bool sends) : bytes(std::move(memory)) {
    one.machine = other;
    one.channel = channel;
    one.bytes = bytes;
    one.sends = sends;
  }
};

/// Two machines, whose links one thread drives.
struct machine_pair {
  std::deque<message> messages{};  // outlive the links
  tcp low{"lo"};
  tcp high{"lo"};

  /// `change` gets the second machine's address.
  template <class Change>
  void open(Change change) {
    const std::vector<std::vector<std::byte>> addresses{low.address(), change(high.address())};
    low.open(0, addresses);
    high.open(1, addresses);
  }
  void open() {
    open([](std::vector<std::byte> address) { return address; });
  }

  message& add(int other, std::uint64_t channel, std::vector<std::byte> memory, bool sends) {
    return messages.emplace_back(other, channel, std::move(memory), sends);
  }

  template <class Condition>
  bool work_until(Condition is_true) {
    for (const auto end = machines::clock::now() + 20s; !is_true() && machines::clock::now() < end;) {
      low.progress();
      high.progress();
    }
    return is_true();
  }
};

/// Sends bytes from the first machine to the second and back, and checks them.
void check_both_ways(machine_pair& machines) {
  message& there = machines.add(1, 5, machines::filled(100'000, 1), true);
  message& arrived = machines.add(0, 5, std::vector<std::byte>(100'000), false);
  message& back = machines.add(0, 6, machines::filled(10, 2), true);
  message& returned = machines.add(1, 6, std::vector<std::byte>(10), false);
  machines.low.start(there.one);
  machines.low.start(returned.one);
  machines.high.start(arrived.one);
  machines.high.start(back.one);
  CHECK(machines.work_until([&] { return there.one.done && arrived.one.done && back.one.done && returned.one.done; }));
  CHECK(!there.one.failed);
  CHECK(!back.one.failed);
  CHECK(arrived.bytes == there.bytes);
  CHECK(returned.bytes == back.bytes);
}

unique_fd connect_to(const std::string& address) {
  unique_fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in target{};
  target.sin_family = AF_INET;
  target.sin_port = htons(static_cast<std::uint16_t>(std::strtoul(address.c_str(), nullptr, 10)));
  target.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&target), sizeof(target)) == 0);
  return socket;
}

}  // namespace

TEST_CASE("tcp: strangers at its port neither get in nor keep others out") {
  machine_pair machines;
  std::string text;
  machines.open([&](std::vector<std::byte> address) {
    text = text_of(address);
    return address;
  });
  std::vector<unique_fd> silent;
  for (int stranger = 0; stranger < 300; ++stranger) {
    silent.push_back(connect_to(text));
    machines.high.progress();
  }
  const unique_fd pretender = connect_to(text);
  constexpr std::array<std::byte, 24> greeting{};  // of machine 0, without the secret
  REQUIRE(::send(pretender.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL) == greeting.size());
  check_both_ways(machines);
  std::array<std::byte, 1> nothing{};
  CHECK(machines.work_until([&] { return ::recv(pretender.get(), nothing.data(), 1, MSG_DONTWAIT) == 0; }));
}

TEST_CASE("tcp: addresses that lead nowhere do not matter beside one that works") {
  machine_pair machines;
  machines.open([](std::vector<std::byte> address) {
    const std::string text = text_of(address);
    const auto port = text.substr(0, text.find(','));
    return with_text(std::move(address), port + ",192.0.2.1,127.0.0.1,127.0.0.2");
  });
  check_both_ways(machines);
}

TEST_CASE("tcp: a machine at which nothing listens fails") {
  machine_pair machines;
  machines.open([](std::vector<std::byte> address) { return with_text(std::move(address), "1,127.0.0.1"); });
  message& there = machines.add(1, 5, machines::filled(100, 1), true);
  machines.low.start(there.one);
  CHECK(machines.work_until([&] { return there.one.done.load(); }));
  CHECK(there.one.failed);
  CHECK(machines.low.failing_machine() == 1);
}

TEST_CASE("tcp: a cancelled receive touches its memory no more, and what comes after it arrives") {
  machine_pair machines;
  machines.open();
  const std::size_t length = std::size_t{16} << 20;
  message& sent = machines.add(1, 5, machines::filled(length, 1), true);
  message& after = machines.add(1, 6, machines::filled(1000, 2), true);
  message& begun = machines.add(0, 5, std::vector<std::byte>(length), false);
  message& waiting = machines.add(0, 7, std::vector<std::byte>(8), false);
  message& last = machines.add(0, 6, std::vector<std::byte>(1000), false);
  for (link_transfer* one : {&sent.one, &after.one}) {
    machines.low.start(*one);
  }
  for (link_transfer* one : {&begun.one, &waiting.one, &last.one}) {
    machines.high.start(*one);
  }
  CHECK(machines.work_until([&] { return begun.bytes.front() == sent.bytes.front(); }));
  for (message* one : {&begun, &waiting}) {
    machines.high.cancel(one->one);
    CHECK(one->one.done);
    CHECK(one->one.failed);
    std::fill(one->bytes.begin(), one->bytes.end(), std::byte{0xAB});
  }
  CHECK(machines.work_until([&] { return sent.one.done && after.one.done && last.one.done; }));
  CHECK(!sent.one.failed);
  CHECK(last.bytes == after.bytes);
  CHECK(begun.bytes == std::vector<std::byte>(length, std::byte{0xAB}));
}

TEST_CASE("tcp: where the other machine has no descriptor left, transfers fail at once") {
  machine_pair machines;
  machines.open([](std::vector<std::byte> address) {
    const std::string text = text_of(address);
    return with_text(std::move(address), text.substr(0, text.find(',')) + ",127.0.0.1");
  });
  message& there = machines.add(1, 5, machines::filled(100, 1), true);
  machines.low.start(there.one);
  const int free = ::dup(STDIN_FILENO);
  ::close(free);
  rlimit usual{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &usual) == 0);
  const rlimit used_up{static_cast<rlim_t>(free), usual.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &used_up) == 0);
  const bool has_ended = machines.work_until([&] { return there.one.done.load(); });
  ::setrlimit(RLIMIT_NOFILE, &usual);
  CHECK(has_ended);
  CHECK(there.one.failed);
}

TEST_CASE("tcp: interfaces that are not there are an engine_error that names them") {
  CHECK_THROWS_WITH_AS(tcp("nowhere0"), doctest::Contains("nowhere0"), hfcomm::engine_error);
}
