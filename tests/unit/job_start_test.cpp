// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

#include <hfcomm/core/error.hpp>
#include <hfcomm/machine/unix_socket.hpp>
#include <hfcomm/rendezvous/address_exchange.hpp>
#include <hfcomm/rendezvous/handshake.hpp>
#include <hfcomm/rendezvous/job_start.hpp>
#include <hfcomm/rendezvous/machine_leader.hpp>
#include <hfcomm/rendezvous/machine_start.hpp>

#include "side_peers.hpp"

namespace {

using namespace std::chrono_literals;
namespace rendezvous = hfcomm::rendezvous;
using side_peers::says;

/// Options of rank 1 of 2, which has no secret. No launcher tells how many ranks this machine has.
rendezvous::job_options rank_1(const std::string& root_host) {
  rendezvous::job_options options;
  options.local_key = "job start " + std::to_string(::getpid());
  options.job_key = options.local_key;
  options.rank = 1;
  options.world_size = 2;
  options.timeout = 500ms;
  options.exchange = std::make_unique<rendezvous::address_exchange>(rendezvous::root_address{{root_host}, {1}, {}});
  options.root_ports = {1};
  return options;
}

/// Done once all ranks of a job have started their parts, as a PMI server's barrier is.
class fence final : public rendezvous::address_exchange {
 public:
  fence(std::atomic<int>& arrived, int world_size) : arrived_(arrived), world_size_(world_size) {}

  [[nodiscard]] bool needs_all_ranks() const noexcept override { return true; }
  void publish(const rendezvous::root_address& /*address*/) override { ++arrived_; }
  void look_up() override { ++arrived_; }
  void attend() override { ++arrived_; }
  bool is_done() override { return arrived_ == world_size_; }

 private:
  std::atomic<int>& arrived_;
  int world_size_;
};

}  // namespace

TEST_CASE("job start: ranks of one machine need no secret, also where a server's fence needs all of them") {
  std::atomic<int> arrived = 0;
  std::atomic<int> started = 0;
  std::vector<std::thread> ranks;
  for (const int rank : {1, 0, 2}) {
    ranks.emplace_back([&, rank] {
      auto options = rank_1("nowhere");
      options.rank = rank;
      options.world_size = 3;
      options.timeout = 20s;
      options.exchange = std::make_unique<fence>(arrived, 3);
      const auto made = rendezvous::join_job(std::move(options));
      started += made.nodes == 1 && made.engine->size() == 3 ? 1 : 0;
    });
    std::this_thread::sleep_for(50ms);  // rank 1 leads
  }
  for (auto& rank : ranks) {
    rank.join();
  }
  CHECK(started == 3);
  CHECK(arrived == 3);
}

TEST_CASE("job start: without a secret, a rank whose rank 0 is on another machine is a usage_error, not a time-out") {
  try {
    rendezvous::join_job(rank_1("203.0.113.1"));  // reserved for documentation
    CHECK(false);
  } catch (const hfcomm::usage_error& problem) {
    CHECK(says(problem.detail(), "rank 0 is at 203.0.113.1, which is no address of this machine"));
    CHECK(says(problem.detail(), "HFCOMM_SECRET_FILE"));
  }
}

TEST_CASE("job start: without a secret, a rank waits for a rank 0 that may come to this machine") {
  for (const char* host : {"127.0.0.1", "no.such.host.invalid"}) {
    try {
      rendezvous::join_job(rank_1(host));
      CHECK(false);
    } catch (const hfcomm::timeout_error& problem) {
      CHECK(says(problem.detail(), "rank 0 did not come to this machine"));
      CHECK(says(problem.detail(), "HFCOMM_SECRET_FILE"));
      CHECK(problem.missing() == std::vector<int>{0});
    }
  }
}

TEST_CASE("job start: an error reaches ranks that have only connected, or have sent what the leader has not read") {
  const std::string name = rendezvous::socket_name("told " + std::to_string(::getpid()));
  std::optional<rendezvous::machine_ranks> leader(std::in_place, rendezvous::local_listener(name), 0, 3,
                                                  rendezvous::deadline{});
  auto accepted = rendezvous::connect_to(name);
  leader->admit(1s);
  auto waiting = rendezvous::connect_to(name);
  const rendezvous::local::hello introduction;
  accepted->send(std::as_bytes(std::span(&introduction, 1)));
  waiting->send(std::as_bytes(std::span(&introduction, 1)));

  leader->tell(rendezvous::local::failed, "the reason");
  leader.reset();

  for (auto* one : {&*accepted, &*waiting}) {
    const auto told = one->receive(1s);
    REQUIRE(told);
    REQUIRE(!told->bytes.empty());
    CHECK(told->bytes.front() == rendezvous::local::failed);
    CHECK(rendezvous::local::text_of(*told) == "the reason");
  }
}
