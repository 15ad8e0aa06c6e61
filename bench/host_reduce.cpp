// SPDX-License-Identifier: MIT
// Measures the host's half of ddp_options::host_reduce: how fast the ranks' chunks are averaged in place in the memory
// that they share, beside a copy of as many bytes by each rank. Ordinary memory stands in for page-locked memory.
//   host_reduce [--ranks N] [--rounds N] [KiB of a chunk ...]     (2 ranks, 31 rounds, 256 1024 2048 4096 25600)
// GB/s are bytes of one rank's gradients by the time of the slowest rank; medians over the rounds, in which both take
// turns. The ring has four chunks of each rank, as that of host_reduce has.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <hfcomm/comm.hpp>

namespace {

struct settings {
  int ranks = 2;
  int rounds = 31;
  std::vector<std::size_t> kibibytes{};
};

std::optional<settings> parse(int count, char** arguments) {
  settings wanted;
  for (int index = 1; index < count; ++index) {
    const std::string_view option = arguments[index];
    const bool is_option = option == "--ranks" || option == "--rounds";
    const long long value = std::atoll(is_option && index + 1 < count ? arguments[++index] : arguments[index]);
    if (value <= 0) {
      return std::nullopt;
    }
    if (option == "--ranks") {
      wanted.ranks = static_cast<int>(value);
    } else if (option == "--rounds") {
      wanted.rounds = static_cast<int>(value);
    } else {
      wanted.kibibytes.push_back(static_cast<std::size_t>(value));
    }
  }
  if (wanted.kibibytes.empty()) {
    wanted.kibibytes = {256, 1024, 2048, 4096, 25600};
  }
  return wanted;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Calls `work(chunk)` for `chunks` chunks of the ring, and returns the slowest rank's seconds.
template <class Work>
double seconds_of(std::size_t chunks, Work work) {
  hfcomm::barrier();
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t index = 0; index < chunks; ++index) {
    work(index);
  }
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  return hfcomm::all_reduce(time.count(), hfcomm::reduce_op::max);
}

constexpr std::size_t slots = 4;

template <class T>
void measure(const settings& wanted, const char* type) {
  for (const std::size_t kibibytes : wanted.kibibytes) {
    const std::size_t count = kibibytes * 1024 / sizeof(T);
    auto ring = hfcomm::world().allocate<T>(slots * count);
    std::fill(ring.begin(), ring.end(), T(1.0F));
    // As many bytes as a large bucket has, so that the copies do not come from a cache.
    const std::size_t chunks = std::max<std::size_t>((std::size_t{64} << 10) / kibibytes, slots);
    const std::vector<T> gradients(chunks * count, T(1.0F));
    const auto chunk = [&](std::size_t index) { return std::span(ring).subspan(index % slots * count, count); };
    std::vector<double> sums;
    std::vector<double> copies;
    for (int round = -1; round < wanted.rounds; ++round) {
      const double copied = seconds_of(chunks, [&](std::size_t index) {
        std::memcpy(static_cast<void*>(chunk(index).data()), gradients.data() + index * count, count * sizeof(T));
      });
      const double summed =
          seconds_of(chunks, [&](std::size_t index) { hfcomm::all_reduce(chunk(index), hfcomm::reduce_op::average); });
      if (round >= 0) {  // the first turn warms up
        sums.push_back(summed);
        copies.push_back(copied);
      }
    }
    for (const T one : ring) {
      if (static_cast<float>(one) != 1.0F) {
        throw std::runtime_error("a wrong average");
      }
    }
    if (hfcomm::is_main_process()) {
      const auto bytes = static_cast<double>(chunks * count * sizeof(T));
      std::printf("%-10s %8zu %14.2f %14.2f\n", type, kibibytes, bytes / median(sums) / 1e9,
                  bytes / median(copies) / 1e9);
      std::fflush(stdout);
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  const auto wanted = parse(count, arguments);
  if (!wanted) {
    std::fprintf(stderr, "usage: host_reduce [--ranks N] [--rounds N] [KiB of a chunk ...]\n");
    return 2;
  }
  return hfcomm::launch(wanted->ranks, [&] {
    if (hfcomm::is_main_process()) {
      std::printf("%d ranks\n%-10s %8s %14s %14s\n", hfcomm::world_size(), "type", "KiB", "average GB/s", "copy GB/s");
    }
    measure<float>(*wanted, "float32");
    measure<hfcomm::bfloat16>(*wanted, "bfloat16");
  });
}
