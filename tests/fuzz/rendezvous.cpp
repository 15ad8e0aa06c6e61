// SPDX-License-Identifier: MIT
// Bytes as packets of the rendezvous: the introduction of a rank, what rank 0 answers, and the plan of a job.
#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <hfcomm/core/error.hpp>
#include <hfcomm/machine/roster.hpp>
#include <hfcomm/rendezvous/handshake.hpp>
#include <hfcomm/rendezvous/job_plan.hpp>

#include "targets.hpp"

namespace fuzz {

namespace {

namespace local = hfcomm::rendezvous::local;

void read_introduction(bytes input) {
  if (const auto introduction = local::hello::from(input)) {
    require(input.size() == sizeof(local::hello), "an introduction has one length");
    require(std::memcmp(&*introduction, input.data(), input.size()) == 0, "an introduction is what was sent");
  }
}

/// Returns whether rank 0's packet is no error.
bool lets_go_on(bytes input) {
  hfcomm::rendezvous::packet answer;
  answer.bytes.assign(input.begin(), input.end());
  try {
    local::throw_if_refused(answer, 0);
    return true;
  } catch (const hfcomm::usage_error&) {
    require(input.front() == local::refused, "a refusal is a usage_error");
  } catch (const hfcomm::timeout_error&) {
    require(input.front() == local::timed_out, "a time-out is a timeout_error");
  } catch (const hfcomm::engine_error&) {
    require(input.empty() || input.front() == local::failed, "a failure is an engine_error");
  }
  return false;
}

void read_answer(bytes input) {
  if (lets_go_on(input)) {
    const std::byte errors[] = {local::refused, local::failed, local::timed_out};
    for (const std::byte kind : errors) {
      require(input.front() != kind, "an error does not let a rank go on");
    }
  }
}

/// The list of missing ranks and the text of a time-out come back as they were written.
void write_time_out(bytes input) {
  std::vector<int> missing;
  for (std::size_t count = choose(input, 8); count > 0; --count) {
    missing.push_back(static_cast<int>(choose(input, 256)) * 8'388'593);
  }
  const std::string text(as_text(input));
  try {
    local::throw_timed_out(local::timed_out_text(missing, text));
  } catch (const hfcomm::timeout_error& problem) {
    require(problem.missing() == missing, "the missing ranks come back");
    require(problem.detail() == text, "the text comes back");
  }
}

/// A machine, and a plan of machines, that are accepted can be used: each rank has one machine, which it or another
/// leads.
void read_plan(bytes input) {
  constexpr int world_size = 4;
  try {
    require(!hfcomm::rendezvous::machine_part::decode(input, world_size).ranks.empty(), "a machine has ranks");
  } catch (const hfcomm::decode_error&) {  // NOLINT(bugprone-empty-catch): most are
  }
  try {
    const auto plan = hfcomm::rendezvous::job_plan::decode(input, world_size);
    for (const int machine : plan.machine_of(world_size)) {
      const auto& part = plan.machines.at(static_cast<std::size_t>(machine));
      require(part.ranks.size() == part.pids.size(), "each rank has a process");
      require(std::ranges::binary_search(part.ranks, part.leader), "a rank of the machine leads it");
    }
  } catch (const hfcomm::decode_error&) {  // NOLINT(bugprone-empty-catch): most are
  }
}

/// A plan comes back as it was written.
void write_plan(bytes input) {
  hfcomm::rendezvous::job_plan plan;
  for (int rank = 0; rank < 3; ++rank) {
    if (plan.machines.empty() || choose(input, 2) != 0) {
      plan.machines.emplace_back().leader = rank;
    }
    plan.machines.back().ranks.push_back(rank);
    plan.machines.back().pids.push_back(static_cast<int>(choose(input, 256)));
  }
  plan.machines.front().host = std::string(as_text(input).substr(0, 255));
  const auto found = hfcomm::rendezvous::job_plan::decode(plan.encode(), 3);
  require(found.encode() == plan.encode(), "the plan comes back");
}

void write_failure(bytes input) {
  hfcomm::rendezvous::failure_text failure;
  require(!failure.read(), "there is no failure at first");
  failure.write(as_text(input));
  failure.write("a second one");
  const auto expected = as_text(input).substr(0, hfcomm::rendezvous::failure_text::capacity - 1);
  require(failure.read() == expected.substr(0, expected.find('\0')), "the first failure comes back");
}

}  // namespace

void read_rendezvous_packets(bytes input) {
  switch (choose(input, 6)) {
    case 0: return read_introduction(input);
    case 1: return read_answer(input);
    case 2: return write_time_out(input);
    case 3: return read_plan(input);
    case 4: return write_plan(input);
    default: return write_failure(input);
  }
}

}  // namespace fuzz
