// SPDX-License-Identifier: MIT
// hfrun -n N [--hosts a,b:4] program args...: starts a program as N ranks of one job, here or on other machines.
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <unistd.h>
#include <csignal>

#include <hfcomm/comm.hpp>
#include <hfcomm/machine/random_id.hpp>
#include <hfcomm/rendezvous/crypto.hpp>

#include "hfrun/failure.hpp"
#include "hfrun/job_part.hpp"
#include "hfrun/local_job.hpp"
#include "hfrun/options.hpp"
#include "hfrun/rank_processes.hpp"
#include "hfrun/remote_job.hpp"
#include "hfrun/signals.hpp"

extern char** environ;

namespace hfrun {
namespace {

constexpr const char* usage = R"(usage: hfrun -n N [option]... [--] program [argument]...

Starts a program as N ranks of one hfcomm job: here, or on the hosts that are named.

  -n N, -np N       the number of ranks; without it, the hosts' numbers
  -H, --hosts a,b:4 hosts, and how many ranks each gets; without a number, they share what is left. An IPv6 address
                    is put in brackets. The other hosts must reach the first by its name; else set HFCOMM_ADDRESS
  --hostfile FILE   the same from a file: one host a line, "a", "b:4" or "b slots=4"
  --rsh PROGRAM     called as PROGRAM HOST COMMAND instead of ssh, with blanks between words: --rsh "ssh -p 2222". Without
                    it, ranks on this host need none: hfrun --hosts localhost:4
  --plain           prints what the ranks print without "[rank 3] " before each line
  -x NAME[=VALUE]   gives the ranks this variable, on hosts, too
  -h, --help        prints this

hfrun and the program have the same path on each host. Remote ranks get this environment's HFCOMM_*, OMP_*, NCCL_* and
UCX_* variables, this directory, and no standard input. Each rank gets one OpenMP thread unless OMP_NUM_THREADS is set.
The status is that of the first rank that failed (128 + the signal's number where one killed it); the others get 2 s.
)";

/// Returns 256 random bits in hexadecimal.
std::string make_secret() {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const std::byte one : hfcomm::rendezvous::random_bytes()) {
    text += digits[std::to_integer<std::size_t>(one >> 4)];
    text += digits[std::to_integer<std::size_t>(one & std::byte{15})];
  }
  return text;
}

/// Returns the variables of all ranks. On a remote host, those of this environment that are for libraries come first.
std::vector<std::string> environment_of(int world_size, const std::string& root_host,
                                        const std::vector<std::string>& wanted) {
  std::vector<std::string> result;
  const bool is_remote = !root_host.empty();
  for (char** variable = environ; is_remote && *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    for (const char* prefix : {"HFCOMM_", "OMP_", "NCCL_", "UCX_"}) {
      if (text.starts_with(prefix)) {
        result.emplace_back(text);
      }
    }
  }
  for (const std::string& variable : wanted) {
    const char* const value = std::getenv(variable.c_str());  // null for NAME=VALUE
    if (variable.find('=') != std::string::npos) {
      result.push_back(variable);
    } else if (value != nullptr) {
      result.push_back(variable + '=' + value);
    }
  }
  result.push_back("HFCOMM_WORLD_SIZE=" + std::to_string(world_size));
  result.emplace_back("HFCOMM_REQUIRE_INIT=1");
  result.push_back("HFCOMM_JOB=" + hfcomm::rendezvous::random_id());
  result.push_back("HFCOMM_SECRET=" + make_secret());
  result.emplace_back("HFCOMM_SECRET_FILE=");  // it would count before the new secret; empty, it does not
  if (is_remote && std::getenv("HFCOMM_ADDRESS") == nullptr) {
    const bool is_ipv6 = root_host.find(':') != std::string::npos;
    const auto name = root_host.substr(root_host.find('@') + 1);  // user@host is the shell's
    result.push_back("HFCOMM_ADDRESS=" + (is_ipv6 ? '[' + name + ']' : name));
  }
  const char* const directory = std::getenv("HFCOMM_OUTPUT_DIRECTORY");
  const auto is_of = [](std::string_view name) {
    return [name](std::string_view text) { return text.starts_with(name) && text.size() > name.size(); };
  };
  const bool has_files = (directory != nullptr && *directory != '\0') ||
                         std::any_of(result.begin(), result.end(), is_of("HFCOMM_OUTPUT_DIRECTORY="));
  if (std::none_of(result.begin(), result.end(), is_of("HFCOMM_MERGED_OUTPUT="))) {
    result.emplace_back(has_files ? "HFCOMM_MERGED_OUTPUT=0" : "HFCOMM_MERGED_OUTPUT=1");
  }
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    result.emplace_back("OMP_NUM_THREADS=1");
  }
  return result;
}

/// Runs the ranks of this machine; returns the status. `on_failure` is called with the first failure. Ends early where
/// `is_cancelled` returns true, which may send the ranks signals.
template <class OnFailure, class IsCancelled>
int run_here(const job_part& part, const forwarded_signals& signals, OnFailure on_failure, IsCancelled is_cancelled) {
  rank_processes ranks(part, signals);
  signals.unblock();
  std::optional<failure> first;
  while (ranks.run_for(std::chrono::milliseconds(10))) {
    if (!first && (first = ranks.first_failure())) {
      on_failure(*first);
    }
    if (is_cancelled(ranks) || (first && std::chrono::steady_clock::now() - first->at > grace)) {
      ranks.stop();
      break;
    }
  }
  if (!first && (first = ranks.first_failure())) {
    on_failure(*first);
  }
  if (first) {
    ranks.stop();
  }
  return first ? first->status : 0;
}

/// Sends the ranks the signals that have come through a descriptor, which does not block. Returns whether their source
/// has ended.
bool pass_signals_on(int descriptor, const rank_processes& ranks) {
  char signal = 0;
  const ::ssize_t count = ::read(descriptor, &signal, 1);
  if (count == 1) {
    ranks.send(signal);
  }
  return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
}

/// The program on a remote host that starts its ranks: reads the part of the job, and then signals, from its input.
int serve() {
  const job_part part = read_part(STDIN_FILENO);
  std::fprintf(stderr, "%s started\n", part.marker.c_str());
  // The remote shell may run here, and ignores SIGINT (see remote_host). The ranks ignore what hfrun was to ignore.
  ignore_only(part.ignored_signals);
  const forwarded_signals signals;
  for (const std::string& variable : part.environment) {  // HFCOMM_OUTPUT_DIRECTORY is for this process
    if (variable.starts_with("HFCOMM_OUTPUT_DIRECTORY=")) {
      ::setenv("HFCOMM_OUTPUT_DIRECTORY", variable.c_str() + sizeof("HFCOMM_OUTPUT_DIRECTORY"), 1);
    }
  }
  if (::chdir(part.directory.c_str()) != 0) {
    hfcomm::rendezvous::throw_system("going to " + part.directory + " on " + part.host);
  }
  const auto report = [&](const failure& one) {
    std::fprintf(stderr, "%s failed %d %d %d %s\n", part.marker.c_str(), one.rank, one.pid, one.status,
                 one.how.c_str());
  };
  ::fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
  return run_here(part, signals, report, [&](const rank_processes& ranks) {
    if (const auto received = signals.take(); received && !received->from_terminal) {
      ranks.send(received->signal);
    }
    return pass_signals_on(STDIN_FILENO, ranks);
  });
}

/// Runs the ranks in a child of hfrun, which passes signals on; those that reach the child itself have reached hfrun,
/// too.
int run_child(const job_part& part, const forwarded_signals& signals, int from_parent) {
  ::fcntl(from_parent, F_SETFL, O_NONBLOCK);
  const int parent = ::getppid();
  return run_here(part, signals, print, [&](const rank_processes& ranks) {
    const bool parent_has_ended = pass_signals_on(from_parent, ranks);
    if (parent_has_ended) {
      print({.host = part.host,
             .how = "hfrun (pid " + std::to_string(parent) + ") was killed, and with it " + ranks_of(part)});
    }
    return parent_has_ended;
  });
}

int run(const options& chosen) {
  job_part part;
  part.directory = std::filesystem::current_path().string();
  part.prefix = chosen.prefix;
  part.command = chosen.command;
  part.ignored_signals = ignored_signals();
  if (chosen.hosts.empty()) {
    std::array<char, 256> name{};
    ::gethostname(name.data(), name.size() - 1);
    part.host = name.data();
    part.ranks = chosen.processes;
    part.has_input = true;
    part.environment = environment_of(chosen.processes, {}, chosen.variables);
    const forwarded_signals signals;
    return local_job(part, signals, [&](int from_parent) { return run_child(part, signals, from_parent); }).run();
  }
  const auto shares = share_ranks(chosen.processes, chosen.hosts);
  if (std::getenv("HFCOMM_ADDRESS") == nullptr) {
    check_root_name(shares);
  }
  part.environment =
      environment_of(shares.back().first_rank + shares.back().ranks, shares.front().name, chosen.variables);
  part.marker = "hfrun-" + hfcomm::rendezvous::random_id();
  std::vector<job_part> parts;
  for (const host_share& share : shares) {
    parts.push_back(part);
    parts.back().host = share.name;
    parts.back().first_rank = share.first_rank;
    parts.back().ranks = share.ranks;
  }
  const forwarded_signals signals;
  return remote_job(parts, chosen.remote_shell, signals).run();
}

}  // namespace
}  // namespace hfrun

int main(int count, char** arguments) {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  ::signal(SIGCHLD, SIG_DFL);  // where it is ignored, the kernel drops the statuses of children
  try {
    if (words == std::vector<std::string>{"--help"} || words == std::vector<std::string>{"-h"}) {
      std::fputs(hfrun::usage, stdout);
      return 0;
    }
    return words == std::vector<std::string>{"--serve"} ? hfrun::serve() : hfrun::run(hfrun::parse(words));
  } catch (const hfrun::usage_error& problem) {
    std::fprintf(stderr, "hfrun: %s\n\n%s", problem.what(), hfrun::usage);
    return 2;
  } catch (const hfcomm::error& problem) {
    std::fprintf(stderr, "[hfrun] %s\n", problem.detail().c_str());
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "[hfrun] %s\n", problem.what());
  }
  return 1;
}
