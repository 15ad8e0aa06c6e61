// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <hfcomm/core/error.hpp>
#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/machine/shared_segment.hpp>
#include <hfcomm/machine/tcp_socket.hpp>
#include <hfcomm/machine/unix_socket.hpp>
#include <hfcomm/rendezvous/credentials.hpp>
#include <hfcomm/rendezvous/side_claims.hpp>
#include <hfcomm/rendezvous/side_connect.hpp>
#include <hfcomm/rendezvous/side_connection.hpp>
#include <hfcomm/rendezvous/side_handshake.hpp>
#include <hfcomm/rendezvous/side_listener.hpp>
#include <hfcomm/rendezvous/side_stream.hpp>

#include "side_peers.hpp"

namespace {

using namespace side_peers;
using namespace std::chrono_literals;
using rendezvous::admission;
using rendezvous::connect_side;
using rendezvous::credentials;
using rendezvous::deadline;
using rendezvous::side_connection;
using rendezvous::side_limits;
using rendezvous::side_listener;
using rendezvous::side_message;
using rendezvous::side_role;
using rendezvous::side_verdict;
using rendezvous::unique_fd;

constexpr auto generous = 20s;  // what a busy machine may take; nothing here should

/// Calls `step` until `is_done`, or fails.
void go_on_until(const std::function<bool()>& is_done, const std::function<void()>& step) {
  const auto limit = deadline::in(generous);
  while (!is_done()) {
    REQUIRE(!limit.passed());
    step();
  }
}

/// Waits for events of a listener, and handles them.
void progress(side_listener& listener, std::chrono::milliseconds most = 5ms) {
  hfcomm::detail::plain_list<pollfd> events;
  listener.add_to(events);
  ::poll(events.data(), events.size(), static_cast<int>(most.count()));
  listener.progress();
}

/// A listener of rank 0 with a thread that takes care of it.
class served_listener {
 public:
  explicit served_listener(admission own = member(0), side_limits limits = {})
      : listener_({0}, std::move(own), limits), thread_([this] {
          while (!stop_) {
            progress(listener_);
          }
        }) {}
  served_listener(const served_listener&) = delete;
  served_listener& operator=(const served_listener&) = delete;
  ~served_listener() { stop(); }

  /// Ends the thread, and returns the listener.
  side_listener& stop() {
    stop_ = true;
    if (thread_.joinable()) {
      thread_.join();
    }
    return listener_;
  }
  [[nodiscard]] std::uint16_t port() const { return listener_.port(); }

 private:
  std::atomic<bool> stop_{false};
  side_listener listener_;
  std::thread thread_;
};

side_connection connect_to(std::uint16_t port, const admission& own = member(1), const char* host = "127.0.0.1") {
  return connect_side(host, {port}, own, deadline::in(generous));
}

/// Both ends of a proven connection.
struct connected_pair {
  explicit connected_pair(const credentials& proof = with_secret(), const char* host = "127.0.0.1")
      : served(member(0, proof)), connector(connect_to(served.port(), member(1, proof), host)) {
    side_listener& listener = served.stop();
    std::optional<side_connection> taken;
    go_on_until([&] { return (taken = listener.take()).has_value(); }, [&] { progress(listener); });
    accepted.emplace(std::move(*taken));
  }

  served_listener served;
  side_connection connector;
  std::optional<side_connection> accepted;
};

/// Waits for the next message of a connection.
std::optional<side_message> wait_for_message(side_connection& connection) {
  std::optional<side_message> message;
  go_on_until([&] { return (message = connection.receive()) || connection.is_closed(); },
              [&] {
                pollfd event{connection.fd(), POLLIN, 0};
                ::poll(&event, 1, 5);
              });
  return message;
}

/// A client that is no process of the job.
unique_fd stranger(std::uint16_t port, std::span<const std::byte> bytes = {}) {
  const auto address = rendezvous::resolve("127.0.0.1", port).addresses.at(0);
  unique_fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(fd.get(), address.get(), address.length) == 0);
  if (!bytes.empty()) {
    ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  return fd;
}

/// Returns whether the other end closes the connection, after at most a hello.
bool is_turned_away(const unique_fd& fd) {
  std::vector<std::byte> bytes(4096);
  std::size_t received = 0;
  while (true) {
    pollfd event{fd.get(), POLLIN, 0};
    REQUIRE(::poll(&event, 1, 20'000) == 1);
    const auto count = ::recv(fd.get(), bytes.data(), bytes.size(), 0);
    if (count <= 0) {
      return received <= rendezvous::side_handshake::hello_bytes;
    }
    received += static_cast<std::size_t>(count);
  }
}

bool has_ipv6() {
  const unique_fd fd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto loopback = rendezvous::resolve("::1", 0).addresses;
  return fd && !loopback.empty() && ::bind(fd.get(), loopback[0].get(), loopback[0].length) == 0;
}

/// Returns the text of the error that `call` throws; empty where it throws none of that type.
template <class Error>
std::string problem_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& problem) {
    return problem.detail();
  }
  return {};
}

/// Returns bytes that strangers send.
std::vector<std::vector<std::byte>> strange_bytes() {
  pair_of_streams recorded;
  recorded.carry();
  std::vector<std::byte> half(recorded.to_listener.begin(), recorded.to_listener.begin() + 20);
  std::vector<std::byte> length(8, std::byte{0});
  length[7] = std::byte{0x80};  // 2^63
  auto wrong_proof = recorded.to_listener;
  wrong_proof.back() ^= std::byte{1};
  return {{},          bytes_of("GET / HTTP/1.1\r\nHost: a\r\n\r\n"),   length, half, recorded.to_listener,
          wrong_proof, std::vector<std::byte>(100'000, std::byte{0xff})};
}

}  // namespace

TEST_CASE("side connection: two processes meet, and messages of all lengths pass in both directions") {
  for (const bool has_secret : {true, false}) {
    connected_pair ends(has_secret ? with_secret() : credentials::none());
    CHECK(ends.accepted->peer().rank == 1);
    CHECK(ends.connector.peer().rank == 0);
    CHECK(ends.connector.peer_address() == "127.0.0.1:" + std::to_string(ends.served.port()));
    CHECK(ends.connector.peer_address() == ends.accepted->local_address());
    CHECK(ends.connector.local_address() == ends.accepted->peer_address());
    for (const std::size_t length : {0U, 1U, 100'000U}) {
      ends.connector.send(4, std::vector<std::byte>(length, std::byte{1}));
      ends.accepted->send(5, std::vector<std::byte>(length, std::byte{2}));
    }
    for (const std::size_t length : {0U, 1U, 100'000U}) {
      const auto there = wait_for_message(*ends.accepted);
      const auto back = wait_for_message(ends.connector);
      CHECK(there->kind == 4);
      CHECK(there->bytes == std::vector<std::byte>(length, std::byte{1}));
      CHECK(back->kind == 5);
      CHECK(back->bytes == std::vector<std::byte>(length, std::byte{2}));
    }
    CHECK(!ends.connector.receive());
    CHECK(!ends.connector.is_closed());
  }
}

TEST_CASE("side connection: sending never waits, and what is queued arrives in order") {
  connected_pair ends;
  const std::vector<std::byte> large(side_message::most_bytes, std::byte{1});
  for (std::uint8_t kind = 0; kind < 3; ++kind) {
    ends.connector.send(kind, large);
  }
  CHECK(ends.connector.wants_write());
  CHECK(ends.connector.queued_bytes() > large.size());
  std::vector<int> kinds;
  go_on_until([&] { return kinds.size() == 3; },
              [&] {
                hfcomm::detail::plain_list<pollfd> events;
                ends.connector.add_to(events);
                ends.accepted->add_to(events);
                ::poll(events.data(), events.size(), 5);
                ends.connector.flush();
                while (const auto message = ends.accepted->receive()) {
                  CHECK(message->bytes == large);
                  kinds.push_back(message->kind);
                }
              });
  CHECK(kinds == std::vector<int>{0, 1, 2});
  CHECK(!ends.connector.wants_write());
  CHECK(ends.connector.queued_bytes() == 0);
}

TEST_CASE("side connection: the end comes after the messages before it, with a reason") {
  connected_pair ends;
  ends.connector.send(1, bytes_of("last"));
  ends.connector.close("done");
  CHECK(ends.connector.close_reason() == "done");
  CHECK(ends.connector.fd() == -1);
  ends.connector.send(1, bytes_of("nothing"));  // no effect
  CHECK(text_of(wait_for_message(*ends.accepted)->bytes) == "last");
  CHECK(!wait_for_message(*ends.accepted));
  CHECK(ends.accepted->close_reason() == "the other end closed the connection");
  hfcomm::detail::plain_list<pollfd> events;
  ends.accepted->add_to(events);
  CHECK(events.empty());
}

TEST_CASE("side connection: a message of impossible length closes the connection") {
  connected_pair ends(credentials::none());
  std::vector<std::byte> length(4, std::byte{0xff});
  REQUIRE(::send(ends.connector.fd(), length.data(), length.size(), MSG_NOSIGNAL) == 4);
  CHECK(!wait_for_message(*ends.accepted));
  CHECK(says(ends.accepted->close_reason(), "impossible length: 4294967295"));
}

TEST_CASE("side connection: bytes that another process puts into a sealed connection close it") {
  connected_pair ends;
  std::vector<std::byte> forged(4 + 1 + 16);
  forged[0] = std::byte{1};
  REQUIRE(::send(ends.connector.fd(), forged.data(), forged.size(), MSG_NOSIGNAL) == 21);
  CHECK(!wait_for_message(*ends.accepted));
  CHECK(says(ends.accepted->close_reason(), "was changed on its way"));
}

TEST_CASE("side connection: descriptors are not inherited, and do not block") {
  connected_pair ends;
  for (const int fd : {ends.connector.fd(), ends.accepted->fd()}) {
    CHECK(fd > 2);
    CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    CHECK((::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
  }
}

TEST_CASE("side connection: IPv6 works, and a listener at all addresses takes both") {
  if (!has_ipv6()) {
    std::printf("[hfcomm] skipped: side connection: IPv6 works: this machine has no IPv6\n");
    return;
  }
  connected_pair ends(with_secret(), "::1");
  CHECK(ends.connector.peer_address() == "[::1]:" + std::to_string(ends.served.port()));

  served_listener everywhere(member(0));
  const auto by_4 = connect_to(everywhere.port(), member(1));
  const auto by_6 = connect_to(everywhere.port(), member(2), "::1");
  CHECK(by_4.verdict() == side_verdict::proven);
  CHECK(by_6.verdict() == side_verdict::proven);
  side_listener& listener = everywhere.stop();
  CHECK(listener.address() == "[::]:" + std::to_string(listener.port()));
  const auto first = listener.take();
  REQUIRE(first);
  CHECK(first->peer_address() == by_4.local_address());  // not as ::ffff:127.0.0.1
}

TEST_CASE("side listener: a port that is taken is followed by the next") {
  const side_listener first({0}, member(0));
  const side_listener second({first.port(), 0}, member(0));
  CHECK(second.port() != first.port());
  CHECK(second.address().ends_with(":" + std::to_string(second.port())));
  const auto problem =
      problem_of<hfcomm::engine_error>([&] { side_listener({first.port(), second.port()}, member(0)); });
  for (const side_listener* one : {&first, &second}) {
    CHECK(says(problem, one->address() + ": Address already in use"));
  }
  CHECK(says(problem_of<hfcomm::engine_error>([&] { side_listener({}, member(0)); }), "no port to try"));
}

TEST_CASE("side listener: a port is free again as soon as its job has ended") {
  std::uint16_t port = 0;
  {
    connected_pair ends;
    port = ends.served.port();
    ends.accepted->close("the listening end closes first, which keeps the port busy for a minute");
    CHECK(!wait_for_message(ends.connector));
  }
  CHECK(side_listener({port}, member(0)).port() == port);
}

TEST_CASE("side listener: each kind of stranger is turned away") {
  served_listener served(member(0), {.handshake = 300ms});
  std::vector<unique_fd> strangers;
  for (const auto& bytes : strange_bytes()) {
    strangers.push_back(stranger(served.port(), bytes));
  }
  for (const auto& one : strangers) {
    CHECK(is_turned_away(one));
  }
  CHECK(connect_to(served.port()).verdict() == side_verdict::proven);
  side_listener& listener = served.stop();
  CHECK(says(listener.describe_refused(), "7 connections were refused, the last one from 127.0.0.1:"));
  CHECK(listener.unproven() == 0);
}

TEST_CASE("side listener: a process of the job gets in among 1000 strangers") {
  rlimit descriptors{};
  ::getrlimit(RLIMIT_NOFILE, &descriptors);
  const rlimit before = descriptors;
  descriptors.rlim_cur = std::min<rlim_t>(descriptors.rlim_max, 12'000);
  ::setrlimit(RLIMIT_NOFILE, &descriptors);
  const std::size_t count = descriptors.rlim_cur >= 3000 ? 1000 : descriptors.rlim_cur / 4;
  {
    served_listener served;
    std::vector<unique_fd> strangers;
    const auto kinds = strange_bytes();
    for (std::size_t index = 0; index < count; ++index) {
      strangers.push_back(stranger(served.port(), kinds[index % 4]));  // silent, HTTP, a length, half a hello
    }
    const auto begin = std::chrono::steady_clock::now();
    CHECK(connect_to(served.port()).verdict() == side_verdict::proven);
    CHECK(std::chrono::steady_clock::now() - begin < 5s);
    side_listener& listener = served.stop();
    CHECK(listener.take());
    CHECK(!listener.take());
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST_CASE("side listener: more strangers than allowed end the oldest ones") {
  side_listener listener({0}, member(0), {.unproven = 3});
  std::vector<unique_fd> strangers;
  for (int index = 0; index < 5; ++index) {
    strangers.push_back(stranger(listener.port()));
    progress(listener);
    CHECK(listener.unproven() == std::min<std::size_t>(strangers.size(), 3));
  }
  CHECK(is_turned_away(strangers[0]));
  CHECK(is_turned_away(strangers[1]));
  CHECK(says(listener.describe_refused(), "2 connections were refused"));
  pollfd event{strangers[2].get(), POLLIN, 0};
  CHECK(::poll(&event, 1, 0) == 0);
}

TEST_CASE("side listener: where descriptors run out, the oldest stranger goes; without one it is an engine_error") {
  const auto connect = [](const unique_fd& fd, const side_listener& listener) {
    const auto address = rendezvous::resolve("127.0.0.1", listener.port()).addresses.at(0);
    REQUIRE(::connect(fd.get(), address.get(), address.length) == 0);
  };
  side_listener busy({0}, member(0));
  side_listener idle({0}, member(0));
  const auto first = stranger(busy.port());
  go_on_until([&] { return busy.unproven() == 1; }, [&] { progress(busy); });
  const unique_fd second(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const unique_fd third(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  connect(second, busy);
  connect(third, idle);

  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const int lowest_free = ::dup(second.get());
  ::close(lowest_free);
  rlimit none_left = before;
  none_left.rlim_cur = static_cast<rlim_t>(lowest_free);
  ::setrlimit(RLIMIT_NOFILE, &none_left);
  go_on_until([&] { return !busy.describe_refused().empty(); }, [&] { progress(busy); });
  progress(busy);
  const auto problem = problem_of<hfcomm::engine_error>([&] { progress(idle); });
  ::setrlimit(RLIMIT_NOFILE, &before);

  CHECK(busy.unproven() == 1);
  CHECK(is_turned_away(first));
  CHECK(says(problem, "Too many open files"));
}

TEST_CASE("side listener: a handshake that takes too long ends, the others go on") {
  side_listener listener({0}, member(0), {.handshake = 100ms});
  const auto silent = stranger(listener.port());
  go_on_until([&] { return listener.unproven() == 1; }, [&] { progress(listener); });
  go_on_until([&] { return listener.unproven() == 0; }, [&] { progress(listener); });
  CHECK(says(listener.describe_refused(), "1 connection was refused, the last one from 127.0.0.1:"));
  CHECK(says(listener.describe_refused(), "the handshake took too long"));
}

TEST_CASE("connect_side: waits for a listener that comes later, and calls back meanwhile") {
  std::uint16_t port = 0;
  {
    port = side_listener({0}, member(0)).port();  // free again
  }
  std::optional<side_listener> late;
  int calls = 0;
  const auto connection = connect_side("127.0.0.1", {port}, member(1), deadline::in(generous), [&] {
    if (++calls == 5) {
      late.emplace(std::vector<std::uint16_t>{port}, member(0));
    }
    if (late) {
      late->progress();
    }
  });
  CHECK(connection.verdict() == side_verdict::proven);
  CHECK(calls >= 5);
}

TEST_CASE("connect_side: what the callback throws ends the attempt") {
  const side_listener listener({0}, member(0));  // nobody serves it
  CHECK_THROWS_AS(connect_side("127.0.0.1", {listener.port()}, member(1), deadline::in(generous),
                               [] { throw hfcomm::engine_error(hfcomm::error_context{}, "stop"); }),
                  hfcomm::engine_error);
}

TEST_CASE("connect_side: the deadline names all addresses that were tried, and why each failed") {
  std::uint16_t port = 0;
  {
    port = side_listener({0}, member(0)).port();
  }
  try {
    connect_side("localhost", {port}, member(1), deadline::in(200ms));
    CHECK(false);
  } catch (const hfcomm::timeout_error& problem) {
    CHECK(says(problem.detail(), "timed out: cannot connect to rank 0 at localhost:" + std::to_string(port)));
    CHECK(says(problem.detail(), "127.0.0.1:" + std::to_string(port) + ": Connection refused"));
    CHECK(says(problem.detail(), "a loopback address"));
    CHECK(problem.missing() == std::vector<int>{0});
  }
  CHECK(says(problem_of<hfcomm::timeout_error>(
                 [&] { connect_side("no.such.host.invalid", {1}, member(1), deadline::in(1ms)); }),
             "no.such.host.invalid:1: "));
}

TEST_CASE("connect_side: a wrong secret is a usage_error that says so, at both ends") {
  served_listener served;
  const auto problem = problem_of<hfcomm::usage_error>(
      [&] { connect_to(served.port(), member(1, with_secret("another secret ....."))); });
  CHECK(says(problem,
             "connection closed before the proof of the job's secret: is HFCOMM_SECRET the same on all "
             "machines?"));
  CHECK(says(served.stop().describe_refused(), "does not know the job's secret"));
}

TEST_CASE("connect_side: a listener of another job with the same secret is a usage_error at once, at both ends") {
  served_listener served;
  admission other = member(1);
  other.job_key = "other";
  CHECK(says(problem_of<hfcomm::usage_error>([&] { connect_to(served.port(), other); }), "the job \"job\""));
  CHECK(says(served.stop().describe_refused(), "the job \"other\""));
}

TEST_CASE("connect_side: a listener of another start of the job is waited for to end") {
  admission earlier = member(0);
  earlier.epoch = 6;
  served_listener served(earlier);
  CHECK(says(problem_of<hfcomm::timeout_error>(
                 [&] { connect_side("127.0.0.1", {served.port()}, member(1), deadline::in(300ms)); }),
             "belongs to start 6 of the job, this process to start 7"));
}

TEST_CASE("connect_side: a listener that is not hfcomm's, or is silent, is named") {
  const auto address = rendezvous::resolve("127.0.0.1", 0).addresses.at(0);
  unique_fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::bind(fd.get(), address.get(), address.length) == 0);
  REQUIRE(::listen(fd.get(), 16) == 0);
  const auto port = rendezvous::address_of(fd.get(), ::getsockname).port();
  CHECK(says(
      problem_of<hfcomm::timeout_error>([&] { connect_side("127.0.0.1", {port}, member(1), deadline::in(100ms)); }),
      "it is there, but did not answer in time"));
  std::atomic<bool> stop = false;
  std::thread web_server([&] {
    const auto text = bytes_of("HTTP/1.1 400 Bad Request\r\n\r\n");
    while (!stop) {
      pollfd event{fd.get(), POLLIN, 0};
      if (::poll(&event, 1, 5) == 1) {
        const unique_fd client(::accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
        ::send(client.get(), text.data(), text.size(), MSG_NOSIGNAL);
      }
    }
  });
  const auto problem = problem_of<hfcomm::usage_error>([&] { connect_to(port); });
  stop = true;
  web_server.join();
  CHECK(!problem.empty());
  CHECK(says(problem, "127.0.0.1:" + std::to_string(port) + ": "));
}
