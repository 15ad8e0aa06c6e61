// SPDX-License-Identifier: MIT
// one_machine LINK MACHINE COUNT FILE CASE...: is one machine of cases. For machines that no test can fork: other
// network namespaces, and MPI's ranks (MACHINE "mpi": the rank that mpirun's or mpiexec's variables tell). FILE is
// shared by the machines and must not exist before; each case adds its name to it. CASE `measure` prints times of two
// machines.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#if defined(HFCOMM_TEST_MPI)
#include <hfcomm/mpi.hpp>
#endif
#include <hfcomm/engine/links/links.hpp>

#include "links/cases.hpp"
#include "links/machines.hpp"

namespace {

using namespace std::chrono_literals;
using machines::clock;
using machines::link_transfer;
using machines::machine;
using machines::meeting;

/// Starts transfers and waits for all of them. `spins`: without sleep.
void do_all(machine& here, std::vector<link_transfer*> all, bool spins) {
  for (auto* one : all) {
    one->done = false;
    one->failed = false;
    here.carrier->start(*one);
  }
  const auto end = clock::now() + 20s;
  for (auto* one : all) {
    while (!one->done) {
      machines::expect(clock::now() < end, "all transfers are done in time");
      if (!here.carrier->progress() && !spins && here.carrier->prepare_sleep()) {
        here.carrier->sleep(-1, 100ms);
      }
    }
    machines::expect(!one->failed, "no transfer fails");
  }
}

template <class Body>
double median_microseconds(int times, Body body) {
  std::vector<double> took;
  for (int time = 0; time < times; ++time) {
    const auto began = clock::now();
    body();
    took.push_back(std::chrono::duration<double, std::micro>(clock::now() - began).count());
  }
  std::ranges::nth_element(took, took.begin() + times / 2);
  return took[static_cast<std::size_t>(times) / 2];
}

void measure(machine& here) {
  const bool first = here.self == 0;
  std::vector<std::byte> out(64 << 20, std::byte{1});
  std::vector<std::byte> in(64 << 20);
  const auto make = [&](std::uint64_t channel, std::vector<std::byte>& memory, std::size_t begin, std::size_t length,
                        bool sends, link_transfer& one) {
    one.machine = 1 - here.self;
    one.channel = channel;
    one.bytes = std::span(memory).subspan(begin, length);
    one.sends = sends;
  };
  for (const bool spins : {true, false}) {
    link_transfer send{};
    link_transfer receive{};
    make(1, out, 0, 8, true, send);
    make(1, in, 0, 8, false, receive);
    const auto round_trip = median_microseconds(3000, [&] {
      if (first) {
        do_all(here, {&receive, &send}, spins);
      } else {
        do_all(here, {&receive}, spins);
        do_all(here, {&send}, spins);
      }
    });
    const auto exchange = median_microseconds(3000, [&] { do_all(here, {&receive, &send}, spins); });
    if (first) {
      std::printf("%s %s: 8 B round trip %.1f us, both at once %.1f us\n", std::string(here.carrier->name()).c_str(),
                  spins ? "spinning" : "sleeping", round_trip, exchange);
    }
  }
  constexpr std::size_t whole = 64 << 20;
  for (const std::size_t chunk : {whole, std::size_t{2} << 20}) {
    std::vector<link_transfer> sends(whole / chunk);
    std::vector<link_transfer> receives(whole / chunk);
    std::vector<link_transfer*> all_sends;
    std::vector<link_transfer*> all_receives;
    for (std::size_t index = 0; index < sends.size(); ++index) {
      make(2, out, index * chunk, chunk, true, sends[index]);
      make(2, in, index * chunk, chunk, false, receives[index]);
      all_sends.push_back(&sends[index]);
      all_receives.push_back(&receives[index]);
    }
    link_transfer answer{};
    make(3, out, 0, 1, !first, answer);
    const auto one_way = median_microseconds(9, [&] {
      do_all(here, first ? all_sends : all_receives, false);
      do_all(here, {&answer}, false);
    });
    auto both = all_sends;
    both.insert(both.end(), all_receives.begin(), all_receives.end());
    here.barrier();
    const auto both_ways = median_microseconds(9, [&] { do_all(here, both, false); });
    if (first) {
      std::printf("%s, 64 MiB in %zu KiB: one way %.1f ms (%.2f GB/s), both ways at once %.1f ms (%.2f GB/s each)\n",
                  std::string(here.carrier->name()).c_str(), chunk >> 10, one_way / 1000, whole / one_way / 1000,
                  both_ways / 1000, whole / both_ways / 1000);
    }
    here.barrier();
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 6) {
    std::fputs("one_machine LINK MACHINE COUNT FILE CASE...\n", stderr);
    return 2;
  }
  const auto rank = [&]() -> const char* {
    for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
      if (const char* value = std::getenv(variable); value != nullptr) {
        return value;
      }
    }
    return "0";
  };
  const int self = std::atoi(std::string_view(arguments[2]) == "mpi" ? rank() : arguments[2]);
  try {
    hfcomm::engines::prepare_link(arguments[1]);
    for (int index = 5; index < count; ++index) {
      const std::string_view wanted = arguments[index];
      const auto found = std::ranges::find(machines::cases::all, wanted, &machines::cases::entry::name);
      machines::expect(wanted == "measure" || found != machines::cases::all.end(), "there is such a case");
      meeting& together = meeting::map((std::string(arguments[4]) + '.' + arguments[index]).c_str());
      machine here{together, self, std::atoi(arguments[3])};
      try {
        here.open(hfcomm::engines::make_link(arguments[1]));
        wanted == "measure" ? measure(here) : found->each(here);
      } catch (...) {
        together.has_failed = true;
        throw;
      }
    }
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "machine %d: %s\n", self, problem.what());
    return 1;
  }
  return 0;
}
