// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "benchmark.hpp"
#include "machine.hpp"

namespace bench {

/// Coordinates the ranks of one job without the library that they measure, through shared memory in the job's folder.
/// It is the same for all libraries, so that all are measured alike, and no library works while another is measured.
class coordinator {
 public:
  /// `folder` has the file "coordinator", of `bytes` zeros.
  static constexpr std::size_t most_samples = 16 << 10;
  static constexpr std::size_t bytes = 4096 + sizeof(double) * most_samples * 64;

  coordinator(const std::filesystem::path& folder, int rank, int size) : rank_(rank), size_(size) {
    const int file = ::open((folder / "coordinator").c_str(), O_RDWR | O_CLOEXEC);
    void* memory =
        file < 0 ? MAP_FAILED : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
    if (memory == MAP_FAILED) {
      throw std::runtime_error("cannot map the file coordinator in " + folder.string());
    }
    ::close(file);
    page_ = static_cast<page*>(memory);
    spins_ = size <= static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
    if (rank == 0) {
      commands_.open(folder / "commands");
      results_.open(folder / "results");
    }
  }

  /// The functions with which a measurement reaches the other ranks.
  [[nodiscard]] peers others() {
    return {rank_, size_, [this] { barrier(); }, [this](std::span<double> values) { maximum(values); }};
  }

  /// Returns the next command on all ranks; "quit" after the last one. Waiting ranks sleep.
  [[nodiscard]] std::string next_command() {
    barrier();
    if (rank_ == 0) {
      std::string line;
      if (!std::getline(commands_, line)) {
        line = "quit";
      }
      line.resize(std::min(line.size(), sizeof(page_->command) - 1));
      std::copy(line.begin(), line.end(), page_->command);
      page_->command[line.size()] = '\0';
      page_->commands.fetch_add(1);
      ::syscall(SYS_futex, &page_->commands, FUTEX_WAKE, 0x7fffffff, nullptr, nullptr, 0);
    } else {
      while (page_->commands.load() == seen_) {
        ::syscall(SYS_futex, &page_->commands, FUTEX_WAIT, seen_, nullptr, nullptr, 0);
      }
    }
    ++seen_;
    return page_->command;
  }

  /// Writes a line to the process that gives the commands.
  void answer(const std::string& line) {
    if (rank_ == 0) {
      results_ << line << std::endl;
    }
  }

 private:
  struct page {
    alignas(128) std::atomic<std::uint32_t> arrived;
    alignas(128) std::atomic<std::uint32_t> generation;
    alignas(128) std::atomic<std::uint32_t> commands;
    char command[512];
    alignas(4096) double samples[1];
  };

  void barrier() {
    const std::uint32_t now = page_->generation.load(std::memory_order_acquire);
    if (page_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<std::uint32_t>(size_)) {
      page_->arrived.store(0, std::memory_order_relaxed);
      page_->generation.fetch_add(1, std::memory_order_acq_rel);
      return;
    }
    for (int spins = 0; page_->generation.load(std::memory_order_acquire) == now; ++spins) {
      if (!spins_ || spins > 20'000) {
        ::sched_yield();
      }
    }
  }

  void maximum(std::span<double> values) {
    if (values.size() > most_samples || size_ > 64) {
      throw std::runtime_error("more samples than there is room for");
    }
    const auto of = [&](int rank) { return page_->samples + static_cast<std::size_t>(rank) * most_samples; };
    std::copy(values.begin(), values.end(), of(rank_));
    barrier();
    for (int rank = 0; rank < size_; ++rank) {
      for (std::size_t index = 0; index < values.size(); ++index) {
        values[index] = std::max(values[index], of(rank)[index]);
      }
    }
    barrier();
  }

  int rank_;
  int size_;
  page* page_;
  bool spins_;
  std::uint32_t seen_ = 0;
  std::ifstream commands_;
  std::ofstream results_;
};

}  // namespace bench
