// SPDX-License-Identifier: MIT
// The cost of many machines for the root: the process of rank 0, to which the leaders of all other machines connect.
// One process is a real root. Another one plays all other leaders, over the loopback interface, with the real protocol.
//   root_start [--machines LIST] [--address-bytes N] [--arrival-ms N] [--idle-seconds N] [--auth secret|none]
//              (10,100,1000       300                 0                4                  secret)
//
// start  from the root's first step until it lets all machines go: the time, and the root's CPU time. The machines
//        connect within --arrival-ms: 0 is all at once
// idle   the root's CPU time in a second in which nothing happens but beats
// end    the root's CPU time while the ranks of all other machines leave, and all others are told

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hfcomm/comm.hpp>
#include <hfcomm/rendezvous/job_start.hpp>

#include "../tests/simulated/job.hpp"
#include "../tests/simulated/leaders.hpp"
#include "machine.hpp"

namespace {

using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;
using hfcomm::rendezvous::unique_fd;

constexpr auto beat_interval = 500ms;  // init_options::silence_limit / 10
constexpr auto limit = 120s;

struct settings {
  std::vector<int> machines{10, 100, 1000};
  std::size_t address_bytes = 300;
  int arrival_milliseconds = 0;
  int idle_seconds = 4;
  bool has_secret = true;
};

double cpu_milliseconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto milliseconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_usec) / 1e3;
  };
  return milliseconds(used.ru_utime) + milliseconds(used.ru_stime);
}

double milliseconds_since(clock_type::time_point begin) {
  return std::chrono::duration<double, std::milli>(clock_type::now() - begin).count();
}

/// The two processes' talk: the root's address, then one report after the start and one after the end.
struct address_packet {
  std::array<char, 512> text{};
};
struct report_packet {
  std::size_t bytes_from_root = 0;
  std::size_t bytes_to_root = 0;
  std::size_t beats = 0;
};
enum class request : std::uint8_t { report, leave };

template <class Packet>
void send_packet(int fd, const Packet& content) {
  if (::send(fd, &content, sizeof(content), MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof(content))) {
    throw std::runtime_error("the other process has ended");
  }
}

template <class Packet>
Packet receive_packet(int fd) {
  Packet content;
  if (::recv(fd, &content, sizeof(content), MSG_WAITALL) != static_cast<ssize_t>(sizeof(content))) {
    throw std::runtime_error("the other process has ended");
  }
  return content;
}

/// The process of all machines but the root's.
class others {
 public:
  others(const simulated::job& job, std::chrono::milliseconds arrival, int talk)
      : job_(job),
        arrival_(arrival),
        talk_(talk),
        leaders_(job, *hfcomm::rendezvous::parse_root_address(receive_packet<address_packet>(talk).text.data())) {}

  void run() {
    const auto begin = clock_type::now();
    for (int machine = 1; machine < job_.machines; ++machine) {
      const auto due = begin + arrival_ * machine / job_.machines;
      do {
        leaders_.progress(std::chrono::ceil<std::chrono::milliseconds>(std::max(due - clock_type::now(), 0ns)));
      } while (clock_type::now() < due);
      leaders_.connect(machine);
    }
    const auto end = clock_type::now() + limit;
    while (leaders_.count(simulated::leaders::stage::started) < job_.machines - 1) {
      leaders_.progress(20ms);
      if (clock_type::now() > end) {
        throw std::runtime_error("the start takes too long");
      }
    }
    for (int machine = 2; machine < job_.machines; ++machine) {
      if (leaders_.plan(machine) != leaders_.plan(1)) {
        throw std::runtime_error("two machines have got different plans");
      }
    }
    beat_until_asked();
  }

 private:
  /// Machines beat at different times, as they do when they have started by themselves.
  void beat_until_asked() {
    const auto pause = std::chrono::nanoseconds(beat_interval) / (job_.machines - 1);
    auto next_beat = clock_type::now();
    int machine = 1;
    while (true) {
      for (; clock_type::now() >= next_beat; next_beat += pause) {
        leaders_.send(machine, hfcomm::engines::control_kind::beat);
        machine = machine == job_.machines - 1 ? 1 : machine + 1;
      }
      leaders_.progress(std::chrono::ceil<std::chrono::milliseconds>(next_beat - clock_type::now()));
      request asked{};
      if (const auto got = ::recv(talk_, &asked, sizeof(asked), MSG_DONTWAIT); got == 0) {
        return;  // the root has failed
      } else if (got > 0 && asked == request::leave) {
        leave();
        return;
      } else if (got > 0) {
        report();
      }
    }
  }

  void report() {
    const auto& received = leaders_.received();
    send_packet(talk_, report_packet{received.bytes, leaders_.sent_bytes(), received.beats});
  }

  void leave() {
    for (int rank = 1; rank < job_.world_size; ++rank) {
      leaders_.leave(rank, rank);
    }
    const auto all = static_cast<std::size_t>(job_.machines) - 1;
    const auto give_up = clock_type::now() + 60s;
    while (leaders_.received().endings < all * all && clock_type::now() < give_up) {
      leaders_.progress(20ms);
    }
    report();
  }

  simulated::job job_;
  std::chrono::milliseconds arrival_;
  int talk_;
  simulated::leaders leaders_;
};

void run_root(const simulated::job& job, const settings& chosen, int talk) {
  auto options = job.root_options([&](const hfcomm::rendezvous::root_address& address) {
    address_packet packet;
    to_text(address).copy(packet.text.data(), packet.text.size() - 1);
    send_packet(talk, packet);
  });
  const auto begin = clock_type::now();
  double cpu = cpu_milliseconds();
  const auto member = hfcomm::rendezvous::join_job(std::move(options));
  const double start_cpu = cpu_milliseconds() - cpu;
  const double start_time = milliseconds_since(begin);

  std::this_thread::sleep_for(1s);  // the other process compares the plans
  send_packet(talk, request::report);
  const auto started = receive_packet<report_packet>(talk);
  cpu = cpu_milliseconds();
  std::this_thread::sleep_for(std::chrono::seconds(chosen.idle_seconds));
  const double idle_cpu = (cpu_milliseconds() - cpu) / chosen.idle_seconds;
  send_packet(talk, request::report);
  const auto idle = receive_packet<report_packet>(talk);

  cpu = cpu_milliseconds();
  send_packet(talk, request::leave);
  receive_packet<report_packet>(talk);
  const double end_cpu = cpu_milliseconds() - cpu;
  std::printf("%9d %10.0f %10.1f %12.0f %12.0f %12.1f %12.0f %10.1f\n", job.machines, start_time, start_cpu,
              static_cast<double>(started.bytes_from_root) / 1024, static_cast<double>(started.bytes_to_root) / 1024,
              idle_cpu, static_cast<double>(idle.beats - started.beats) / chosen.idle_seconds, end_cpu);
  std::fflush(stdout);
}

/// Runs a job of so many machines. Returns whether it worked.
bool measure(int machines, const settings& chosen) {
  simulated::job job;
  job.key = "root_start " + std::to_string(::getpid());
  job.machines = machines;
  job.world_size = machines;
  job.address_bytes = chosen.address_bytes;
  if (!chosen.has_secret) {
    job.secret.clear();
  }
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    std::perror("root_start: socketpair");
    return false;
  }
  unique_fd own(ends[0]);
  unique_fd theirs(ends[1]);
  const pid_t child = ::fork();
  const auto guarded = [](const char* who, auto&& work) {
    try {
      work();
      return true;
    } catch (const std::exception& problem) {
      std::fprintf(stderr, "root_start: %s: %s\n", who, problem.what());
      return false;
    }
  };
  if (child == 0) {
    own.close();
    ::_exit(guarded("the other machines",
                    [&] { others(job, std::chrono::milliseconds(chosen.arrival_milliseconds), theirs.get()).run(); })
                ? 0
                : 1);
  }
  theirs.close();
  const bool works = guarded("the root", [&] { run_root(job, chosen, own.get()); });
  own.close();
  int status = 0;
  ::waitpid(child, &status, 0);
  return works && status == 0;
}

int number(const std::string& text, int least, int most) {
  const int value = std::atoi(text.c_str());
  if (value < least || value > most) {
    throw std::invalid_argument(text + " is not from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return value;
}

settings parse(std::span<char*> arguments) {
  settings result;
  for (std::size_t index = 0; index < arguments.size(); index += 2) {
    const std::string_view option = arguments[index];
    if (index + 1 == arguments.size()) {
      throw std::invalid_argument(std::string(option) + " needs a value");
    }
    const std::string value = arguments[index + 1];
    if (option == "--machines") {
      result.machines.clear();
      for (std::size_t begin = 0; begin < value.size(); begin = std::min(value.find(',', begin), value.size()) + 1) {
        result.machines.push_back(number(value.substr(begin, value.find(',', begin) - begin), 3, 1024));
      }
    } else if (option == "--address-bytes") {
      result.address_bytes = static_cast<std::size_t>(number(value, 1, 4096));
    } else if (option == "--arrival-ms") {
      result.arrival_milliseconds = number(value, 0, 60'000);
    } else if (option == "--idle-seconds") {
      result.idle_seconds = number(value, 1, 600);
    } else if (option == "--auth" && (value == "secret" || value == "none")) {
      result.has_secret = value == "secret";
    } else {
      throw std::invalid_argument("unknown argument " + std::string(option) + ' ' + value);
    }
  }
  return result;
}

}  // namespace

int main(int count, char** arguments) {
  settings chosen;
  try {
    chosen = parse(std::span(arguments, static_cast<std::size_t>(count)).subspan(1));
  } catch (const std::invalid_argument& problem) {
    std::fprintf(stderr,
                 "root_start: %s\nroot_start [--machines LIST] [--address-bytes N] [--arrival-ms N] "
                 "[--idle-seconds N] [--auth secret|none]\n",
                 problem.what());
    return 2;
  }
  rlimit descriptors{};
  ::getrlimit(RLIMIT_NOFILE, &descriptors);
  descriptors.rlim_cur = std::min<rlim_t>(descriptors.rlim_max, 16'384);
  ::setrlimit(RLIMIT_NOFILE, &descriptors);
  std::printf("# %ld cores; links' addresses of %zu bytes; beats each %lld ms\n", bench::describe_machine().cores,
              chosen.address_bytes, static_cast<long long>(beat_interval.count()));
  std::printf("# %7s %10s %10s %12s %12s %12s %12s %10s\n", "machines", "start", "start CPU", "from root", "to root",
              "idle CPU", "beats", "end CPU");
  std::printf("# %7s %10s %10s %12s %12s %12s %12s %10s\n", "", "ms", "ms", "KiB", "KiB", "ms/s", "1/s", "ms");
  bool works = true;
  for (const int machines : chosen.machines) {
    works = measure(machines, chosen) && works;
  }
  return works ? 0 : 1;
}
