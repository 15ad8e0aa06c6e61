// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include <hfcomm/core/error.hpp>
#include <hfcomm/machine/unix_socket.hpp>
#include <hfcomm/rendezvous/address_exchange.hpp>
#include <hfcomm/rendezvous/handshake.hpp>
#include <hfcomm/rendezvous/job_options.hpp>
#include <hfcomm/rendezvous/job_start.hpp>
#include <hfcomm/rendezvous/machine_leader.hpp>

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
  options.exchange = rendezvous::exchange_known({{root_host}, {1}, {}});
  options.root_ports = {1};
  return options;
}

}  // namespace

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
