// SPDX-License-Identifier: MIT
#pragma once

#include <ctime>
#include <fstream>
#include <stdexcept>
#include <string>

#include <sched.h>
#include <unistd.h>

namespace bench {

/// The machine on which figures were measured.
struct machine {
  std::string date;
  std::string cpu;
  long cores = 1;             ///< The machine's.
  int allowed_cores = 1;      ///< That this process may use: 1 where it is bound to one.
  std::string load;           ///< From /proc/loadavg.
  double stolen_seconds = 0;  ///< Since the start of the machine: time in which a host gave the cores to others.
  std::string compiler;
  bool optimized = false;
};

[[nodiscard]] inline int allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

/// Binds this process to the `index`-th of the cores that it may use.
inline void bind_to_core(int index) {
  cpu_set_t set;
  CPU_ZERO(&set);
  ::sched_getaffinity(0, sizeof(set), &set);
  int seen = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set) && seen++ == index) {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(core, &one);
      if (::sched_setaffinity(0, sizeof(one), &one) == 0) {
        return;
      }
    }
  }
  throw std::runtime_error("cannot bind to core number " + std::to_string(index) + " of those that are allowed");
}

[[nodiscard]] inline machine describe_machine() {
  machine found;
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  found.date = text;

  found.cpu = "unknown";
  std::ifstream cpus("/proc/cpuinfo");
  for (std::string line; std::getline(cpus, line);) {
    if (line.starts_with("model name")) {
      const auto colon = line.find(": ");
      found.cpu = colon == std::string::npos ? line : line.substr(colon + 2);
      break;
    }
  }
  found.cores = ::sysconf(_SC_NPROCESSORS_ONLN);
  found.allowed_cores = allowed_cores();
  std::ifstream load("/proc/loadavg");
  std::getline(load, found.load);

  std::ifstream stat("/proc/stat");
  std::string word;
  // cpu user nice system idle iowait irq softirq steal
  for (int column = 0; column <= 8 && stat >> word; ++column) {
    if (column == 8) {
      found.stolen_seconds = std::stod(word) / static_cast<double>(::sysconf(_SC_CLK_TCK));
    }
  }
#if defined(__clang__)
  found.compiler = "clang " __clang_version__;
#elif defined(__GNUC__)
  found.compiler = "g++ " __VERSION__;
#else
  found.compiler = "unknown";
#endif
#if defined(__OPTIMIZE__)
  found.optimized = true;
#endif
  return found;
}

}  // namespace bench
