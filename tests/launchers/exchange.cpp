// SPDX-License-Identifier: MIT
// The program that exchange.sh starts: the last rank publishes an address, rank 0 looks on, the others look it up, as
// on several machines. Prints "rank R found TEXT" on these.
#include <chrono>
#include <cstdio>
#include <string>

#include <hfcomm/comm.hpp>
#include <hfcomm/group/detail/root_exchange.hpp>
#include <hfcomm/rendezvous/address_exchange.hpp>

int main() {
  const auto job = hfcomm::detect_environment();
  const auto exchange = hfcomm::detail::make_address_exchange(job, {});
  const bool looks_up = job.rank != 0 && job.rank != job.world_size - 1;
  if (job.rank == job.world_size - 1) {
    exchange->publish({{"10.77.0.1", "fd77::1"}, {20001}, "nonce"});
  } else if (looks_up) {
    exchange->look_up();
  } else {
    exchange->attend();
  }
  hfcomm::rendezvous::finish_exchange(*exchange, hfcomm::rendezvous::deadline::in(std::chrono::seconds(30)),
                                      "the launcher");
  if (looks_up) {
    std::printf("rank %d found %s\n", job.rank, hfcomm::rendezvous::to_text(exchange->found()).c_str());
  }
}
