// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <future>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <hfcomm/core/error.hpp>
#include <hfcomm/rendezvous/job_start.hpp>

#include "../simulated/job.hpp"
#include "../simulated/leaders.hpp"
#include "side_peers.hpp"

// A real root, and machines whose leaders one thread plays.
namespace {

using namespace std::chrono_literals;
using hfcomm::rendezvous::deadline;
using hfcomm::rendezvous::job_plan;
using hfcomm::rendezvous::machine_part;
using hfcomm::rendezvous::membership;
using hfcomm::rendezvous::root_address;
using hfcomm::rendezvous::unique_fd;
using side_peers::bytes_of;
using side_peers::says;
using simulated::job;
using simulated::leaders;

constexpr auto generous = 60s;  // what a busy machine may take; nothing here should

job job_of(int machines, int world_size) {
  static int number = 0;
  job made;
  made.key = "many machines " + std::to_string(::getpid()) + ' ' + std::to_string(++number);
  made.machines = machines;
  made.world_size = world_size;
  return made;
}

/// The root of a job, in a thread.
class root_thread {
 public:
  explicit root_thread(const job& what)
      : thread_([this, options = options_of(what)]() mutable { run(std::move(options)); }) {}
  root_thread(const root_thread&) = delete;
  root_thread& operator=(const root_thread&) = delete;
  ~root_thread() { thread_.join(); }

  /// Waits until the root listens.
  root_address address() { return address_.get_future().get(); }
  [[nodiscard]] bool is_done() const { return is_done_; }
  /// Waits until the start is over, and returns the root's membership. Throws its error.
  membership member() { return member_.get_future().get(); }

 private:
  hfcomm::rendezvous::job_options options_of(const job& what) {
    return what.root_options([this](const root_address& address) { address_.set_value(address); });
  }

  void run(hfcomm::rendezvous::job_options options) {
    try {
      member_.set_value(hfcomm::rendezvous::join_job(std::move(options)));
    } catch (...) {
      member_.set_exception(std::current_exception());
    }
    is_done_ = true;
  }

  std::promise<root_address> address_;
  std::promise<membership> member_;
  std::atomic<bool> is_done_{false};
  std::thread thread_;
};

void go_on_until(leaders& machines, const std::function<bool()>& is_done) {
  const auto limit = deadline::in(generous);
  while (!is_done()) {
    REQUIRE(!limit.passed());
    machines.progress(5ms);
  }
}

/// Lets all machines that have connected start.
void start(const job& what, leaders& machines) {
  go_on_until(machines, [&] { return machines.count(leaders::stage::started) == what.machines - 1; });
}

void connect_all(const job& what, leaders& machines) {
  for (int machine = 1; machine < what.machines; ++machine) {
    machines.connect(machine);
  }
}

/// A job that has started.
struct started_job {
  explicit started_job(job which) : what(std::move(which)), root(what), machines(what, root.address()) {
    connect_all(what, machines);
    start(what, machines);
    member = root.member();
  }

  job what;
  root_thread root;
  leaders machines;
  membership member;
};

void check_plan(const job& what, const job_plan& plan) {
  REQUIRE(plan.machines.size() == static_cast<std::size_t>(what.machines));
  CHECK(plan.machines[0].ranks == std::vector<int>{0});
  CHECK(plan.machines[0].link_address == what.link_address(0));
  for (int machine = 1; machine < what.machines; ++machine) {
    CHECK(plan.machines[static_cast<std::size_t>(machine)].encode() == what.part(machine).encode());
  }
}

/// Checks what the root and all machines know after the start.
void check_start(const job& what, const leaders& machines, const membership& root) {
  for (int machine = 2; machine < what.machines; ++machine) {
    CHECK(machines.plan(machine) == machines.plan(1));
  }
  check_plan(what, job_plan::decode(machines.plan(1), what.world_size));
  CHECK(root.nodes == what.machines);
  for (int machine = 1; machine < what.machines; ++machine) {
    const machine_part part = what.part(machine);
    for (std::size_t place = 0; place < part.ranks.size(); ++place) {
      CHECK(root.roster->machine(part.ranks[place]) == machine);
      CHECK(root.roster->identity(part.ranks[place]) == "pid " + std::to_string(part.pids[place]) + " on " + part.host);
    }
  }
}

/// Returns the connection of a machine's leader that has proven itself, and has said nothing.
hfcomm::rendezvous::side_connection proven_leader(const job& what, const root_address& root, int machine) {
  const hfcomm::rendezvous::admission own{what.proof(), what.key + '/' + root.nonce, 0, what.world_size, machine};
  return hfcomm::rendezvous::connect_side("127.0.0.1", root.ports, own, deadline::in(generous));
}

void send(hfcomm::rendezvous::side_connection& connection, hfcomm::rendezvous::start_kind kind,
          std::span<const std::byte> bytes) {
  connection.send(static_cast<std::uint8_t>(kind), bytes);
}

/// Returns what the root's error says.
template <class Error>
std::string error_of(root_thread& root) {
  try {
    root.member();
  } catch (const Error& problem) {
    return problem.detail();
  }
  return "no such error";
}

/// Somebody who connects to the root, sends these bytes, and stays.
unique_fd stranger(const root_address& root, std::span<const std::byte> bytes) {
  const auto address = hfcomm::rendezvous::resolve("127.0.0.1", root.ports.at(0)).addresses.at(0);
  unique_fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(fd.get(), address.get(), address.length) == 0);
  ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  return fd;
}

/// Returns how many bytes come until the other end closes the connection.
std::size_t received_by(const unique_fd& fd) {
  std::vector<std::byte> bytes(65'536);
  std::size_t received = 0;
  while (true) {
    pollfd event{fd.get(), POLLIN, 0};
    REQUIRE(::poll(&event, 1, 60'000) == 1);
    const auto count = ::recv(fd.get(), bytes.data(), bytes.size(), 0);
    if (count <= 0) {
      return received;
    }
    received += static_cast<std::size_t>(count);
  }
}

}  // namespace

TEST_CASE("many machines: the claims of all reach the root, and all get the right plan") {
  const job what = job_of(50, 120);
  started_job started(what);
  check_start(what, started.machines, started.member);
}

TEST_CASE("many machines: strangers between them neither learn the plan nor delay the start") {
  const job what = job_of(50, 50);
  root_thread root(what);
  const root_address address = root.address();
  leaders machines(what, address);
  side_peers::pair_of_streams recorded;
  recorded.carry();
  const std::vector<std::vector<std::byte>> greetings{{},
                                                      bytes_of("GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
                                                      {recorded.to_listener.begin(), recorded.to_listener.begin() + 20},
                                                      recorded.to_listener,
                                                      std::vector<std::byte>(100'000, std::byte{0xff})};
  std::vector<unique_fd> strangers;
  for (int machine = 1; machine < what.machines; ++machine) {
    strangers.push_back(stranger(address, greetings[strangers.size() % greetings.size()]));
    machines.connect(machine);
    machines.progress(0ms);
  }
  start(what, machines);
  check_start(what, machines, root.member());
  for (const unique_fd& one : strangers) {
    CHECK(received_by(one) <= hfcomm::rendezvous::side_handshake::hello_bytes);
  }
}

TEST_CASE("many machines: a plan that the system does not take at once arrives") {
  job what = job_of(50, 50);
  what.address_bytes = 4096;
  what.has_small_buffers = true;
  started_job started(what);
  CHECK(started.machines.plan(1).size() > 200'000);
  check_start(what, started.machines, started.member);
}

TEST_CASE("many machines: a rank that two machines claim is a usage_error that names both, on all machines") {
  const job what = job_of(50, 50);
  root_thread root(what);
  const root_address address = root.address();
  job other = what;
  other.machines = 3;  // so that its machine 1 has the ranks 1, 3, 5, ...
  leaders machines(what, address);
  leaders others(other, address);
  for (int machine = 2; machine < 50; ++machine) {
    machines.connect(machine);
  }
  go_on_until(machines, [&] { return machines.count(leaders::stage::joined) == 48; });
  others.connect(1);
  go_on_until(others, [&] {
    machines.progress(0ms);
    return root.is_done();
  });
  machines.progress(0ms);
  const std::string told = "two processes claim rank 3: one on machine1, and one on machine3";
  try {
    root.member();
    CHECK(false);
  } catch (const hfcomm::usage_error& problem) {
    CHECK(problem.detail() == told);
  }
  CHECK(others.error(1) == told);
  for (int machine = 2; machine < 50; ++machine) {
    CHECK(machines.error(machine) == told);
  }
}

TEST_CASE(
    "many machines: the root waits for what a machine that has connected claims, also where all ranks have come") {
  const job what = job_of(3, 3);
  root_thread root(what);
  const root_address address = root.address();
  auto late = proven_leader(what, address, 1);
  leaders machines(what, address);
  connect_all(what, machines);
  for (int pass = 0; pass < 20; ++pass) {
    machines.progress(5ms);
  }
  CHECK_FALSE(root.is_done());
  send(late, hfcomm::rendezvous::start_kind::join, what.part(1).encode());
  CHECK(error_of<hfcomm::usage_error>(root) == "two processes claim rank 1: one on machine1, and one on machine1");
}

TEST_CASE("many machines: a machine that is ready before it has a plan is an error") {
  const job what = job_of(3, 3);
  root_thread root(what);
  auto early = proven_leader(what, root.address(), 1);
  send(early, hfcomm::rendezvous::start_kind::ready, {});
  CHECK(says(error_of<hfcomm::engine_error>(root), "is ready before it has the plan of the job"));
}

TEST_CASE("many machines: a plan comes in parts, and is at most as long as a message") {
  using hfcomm::rendezvous::start_kind;
  const auto message = [](start_kind kind, std::size_t length, std::byte value) {
    return hfcomm::rendezvous::side_message{static_cast<std::uint8_t>(kind), std::vector<std::byte>(length, value)};
  };
  hfcomm::rendezvous::plan_receiver plan;

  CHECK(!plan.take(message(start_kind::plan_part, 2, std::byte{1})));
  CHECK(!plan.take(message(start_kind::go, 5, std::byte{9})));
  CHECK(plan.take(message(start_kind::plan, 1, std::byte{2})));

  CHECK(plan.bytes() == std::vector{std::byte{1}, std::byte{1}, std::byte{2}});
  const std::size_t rest = hfcomm::rendezvous::side_message::most_bytes - plan.bytes().size();
  CHECK_THROWS_AS(plan.take(message(start_kind::plan, rest + 1, std::byte{3})), hfcomm::engine_error);
}

TEST_CASE("many machines: a plan that does not fit the job is a decode_error") {
  const job what = job_of(3, 5);
  job_plan right;
  right.machines = {what.part(1), what.part(1), what.part(2)};
  right.machines[0].leader = 0;
  right.machines[0].ranks = {0};
  right.machines[0].pids = {1};
  CHECK_NOTHROW(job_plan::decode(right.encode(), 5).require_follower(2));
  CHECK_THROWS_AS(job_plan::decode(right.encode(), 5).require_follower(0), hfcomm::decode_error);
  CHECK_THROWS_AS(job_plan::decode(right.encode(), 5).require_follower(3), hfcomm::decode_error);
  CHECK_THROWS_AS(job_plan::decode(right.encode(), 6), hfcomm::decode_error);
  const auto refused = [&](auto change) {
    job_plan wrong = right;
    change(wrong.machines);
    CHECK_THROWS_AS(job_plan::decode(wrong.encode(), 5).require_follower(2), hfcomm::decode_error);
  };
  refused([](auto& machines) { machines[1].pids.pop_back(); });
  refused([](auto& machines) { machines[1].leader = 2; });
  refused([](auto& machines) { std::swap(machines[1].ranks[0], machines[1].ranks[1]); });
  refused([](auto& machines) { machines[1].ranks[1] = machines[1].ranks[0]; });
  refused([](auto& machines) { machines[1].ranks[1] = -1; });
  refused([](auto& machines) { machines.push_back({}); });
  refused([](auto& machines) { std::swap(machines[0], machines[2]); });
  refused([](auto& machines) {
    machines[0].ranks.insert(machines[0].ranks.end(), {2, 4});
    machines[0].pids.insert(machines[0].pids.end(), {2, 4});
    machines.pop_back();
  });
}

TEST_CASE("many machines: the root beats for all, and tells all others which machine has gone") {
  started_job started(job_of(50, 50));
  const std::size_t others = 49;
  go_on_until(started.machines, [&] { return started.machines.received().beats >= 2 * others; });
  started.machines.close(7);
  go_on_until(started.machines, [&] { return started.machines.received().losses >= others - 1; });
  CHECK(started.machines.received().losses == others - 1);
  go_on_until(started.machines, [&] { return started.member.roster->ending(7).has_value(); });
  CHECK(started.member.roster->ending(7)->text == "ended without a word: its connection was closed");
  CHECK(!started.member.roster->ending(8));
}

TEST_CASE("many machines: the root tells all machines how ranks have ended, each once") {
  started_job started(job_of(50, 50));
  for (int rank = 1; rank < 50; ++rank) {
    started.machines.leave(rank, rank);
  }
  go_on_until(started.machines, [&] { return started.machines.received().endings >= std::size_t{49} * 49; });
  CHECK(started.machines.received().endings == std::size_t{49} * 49);
}
