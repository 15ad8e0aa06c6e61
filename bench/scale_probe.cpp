// SPDX-License-Identifier: MIT
// The measurements of bench/scale that need hfcomm's own parts. Prints lines "NAME NUMBER".
//   scale_probe link MACHINE FOLDER   machine 0 or 1 of two: messages over the default link; FOLDER is shared and empty
//   scale_probe start                 a rank of a job, by the HFCOMM variables: when its start began and ended, and
//   what
//                                     it has open then
//   scale_probe sizes RANKS           the memory of a group of so many ranks on each of several machines

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <time.h>

#include <hfcomm/comm.hpp>
#include <hfcomm/engine/hierarchical/frame.hpp>
#include <hfcomm/engine/links/links.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>

namespace {

namespace fs = std::filesystem;
using clock_type = std::chrono::steady_clock;
using hfcomm::engines::link;
using hfcomm::engines::link_transfer;

void print(const char* name, double value) {
  std::printf("%s %.9g\n", name, value);
  std::fflush(stdout);
}

/// Microseconds of a clock; CLOCK_MONOTONIC is the same in all processes.
double now_us(clockid_t clock = CLOCK_MONOTONIC) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// One of two machines that exchange messages.
class link_measurement {
 public:
  link_measurement(int self, fs::path folder) : self_(self), folder_(std::move(folder)) {
    hfcomm::engines::prepare_link("");
    link_ = hfcomm::engines::make_link("");
    const auto own = link_->address();
    write(std::to_string(self), {reinterpret_cast<const char*>(own.data()), own.size()});
    std::vector<std::vector<std::byte>> addresses(2);
    addresses[static_cast<std::size_t>(self)] = own;
    const std::string theirs = read(std::to_string(1 - self));
    const auto bytes = std::as_bytes(std::span(theirs));
    addresses[static_cast<std::size_t>(1 - self)].assign(bytes.begin(), bytes.end());
    link_->open(self, std::move(addresses));
  }

  void run() {
    round_trip();
    flood("small", sizeof(hfcomm::engines::frame), 2000);
    flood("large", 512 << 10, 64);
  }

 private:
  void write(const std::string& name, std::string_view text) const {
    const fs::path hidden = folder_ / ('.' + name);
    std::ofstream(hidden, std::ios::binary) << text;
    fs::rename(hidden, folder_ / name);
  }
  [[nodiscard]] std::string read(const std::string& name) const {
    const auto give_up = clock_type::now() + std::chrono::seconds(20);
    while (!fs::exists(folder_ / name)) {
      if (clock_type::now() > give_up) {
        throw std::runtime_error("the other machine has not come");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::ifstream file(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  void start(link_transfer& one, std::span<std::byte> bytes, bool sends) {
    one.machine = 1 - self_;
    one.channel = 1;
    one.bytes = bytes;
    one.sends = sends;
    one.done.store(false);
    const double begin = now_us(CLOCK_THREAD_CPUTIME_ID);
    link_->start(one);
    work_us_ += now_us(CLOCK_THREAD_CPUTIME_ID) - begin;
  }
  [[nodiscard]] bool progress() {
    const double begin = now_us(CLOCK_THREAD_CPUTIME_ID);
    const double begin_look = now_us();
    const bool moved = link_->progress();
    if (moved) {
      work_us_ += now_us(CLOCK_THREAD_CPUTIME_ID) - begin;
    } else if (looks_.size() < 100'000) {  // looking in vain is no work
      looks_.push_back(now_us() - begin_look);
    }
    return moved;
  }
  /// Waits as a machine's agent does.
  void finish(link_transfer& one) {
    auto busy_until = clock_type::now() + std::chrono::microseconds(200);
    while (!one.done) {
      if (progress()) {
        busy_until = clock_type::now() + std::chrono::microseconds(200);
      } else if (clock_type::now() < busy_until) {
        std::this_thread::yield();
      } else if (link_->prepare_sleep()) {
        link_->sleep(-1, std::chrono::milliseconds(20));
      }
    }
    if (one.failed) {
      throw std::runtime_error("a transfer has failed");
    }
  }

  void round_trip() {
    std::vector<std::byte> out(sizeof(hfcomm::engines::frame));
    std::vector<std::byte> in(out.size());
    std::vector<double> times;
    for (int turn = 0; turn < 3000; ++turn) {
      link_transfer send;
      link_transfer receive;
      const auto begin = now_us();
      start(receive, in, false);
      if (self_ == 0) {
        start(send, out, true);
        finish(receive);
      } else {
        finish(receive);
        start(send, out, true);
      }
      finish(send);
      times.push_back(now_us() - begin);
    }
    if (self_ == 0) {
      print("round_trip_us", median(std::move(times)));
      print("look_us", median(std::move(looks_)));
    }
  }

  /// Many messages at once, to one side and then both ways. Prints the time and this thread's work for one message.
  void flood(const std::string& name, std::size_t bytes, std::size_t count) {
    for (const bool both : {false, true}) {
      std::vector<double> times;
      std::vector<double> work;
      for (int turn = 0; turn < 9; ++turn) {
        wait_for_other();
        const auto begin = now_us();
        work_us_ = 0;
        exchange(bytes, both || self_ == 0 ? count : 0, both || self_ == 1 ? count : 0);
        work.push_back(work_us_ / static_cast<double>(count));
        wait_for_other();
        times.push_back((now_us() - begin) / static_cast<double>(count));
      }
      if (self_ == 0 || !both) {
        const std::string what = name + (both ? "_both" : self_ == 0 ? "_send" : "_receive");
        print((what + "_work_us").c_str(), median(std::move(work)));
        if (self_ == 0) {
          print((name + (both ? "_both_us" : "_one_way_us")).c_str(), median(std::move(times)));
        }
      }
    }
  }

  void exchange(std::size_t bytes, std::size_t sends, std::size_t receives) {
    buffer_.resize(bytes * std::max<std::size_t>(sends, 1));
    received_.resize(bytes * std::max<std::size_t>(receives, 1));
    std::deque<link_transfer> all(sends + receives);
    for (std::size_t index = 0; index < receives; ++index) {
      start(all[index], std::span(received_).subspan(index * bytes, bytes), false);
    }
    for (std::size_t index = 0; index < sends; ++index) {
      start(all[receives + index], std::span(buffer_).subspan(index * bytes, bytes), true);
    }
    for (auto& one : all) {
      finish(one);
    }
  }

  void wait_for_other() {
    std::byte out{1};
    std::byte in{};
    link_transfer send;
    link_transfer receive;
    start(receive, std::span(&in, 1), false);
    start(send, std::span(&out, 1), true);
    finish(receive);
    finish(send);
  }

  int self_;
  fs::path folder_;
  std::unique_ptr<link> link_;
  double work_us_ = 0;         // of this thread
  std::vector<double> looks_;  // times of looking for messages in vain
  std::vector<std::byte> buffer_;
  std::vector<std::byte> received_;
};

int start_rank() {
  const double begin = now_us();
  const double begin_work = now_us(CLOCK_PROCESS_CPUTIME_ID);
  const auto session = hfcomm::init();
  print("began_us", begin);
  print("ended_us", now_us());
  print("work_us", now_us(CLOCK_PROCESS_CPUTIME_ID) - begin_work);
  hfcomm::barrier();  // so that all connections are there
  print("descriptors",
        static_cast<double>(std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator())));
  hfcomm::barrier();
  return 0;
}

/// Prints the size of the memory of a group across machines.
void print_memory(int ranks) {
  print("mirror_bytes", static_cast<double>(hfcomm::engines::layout::dimensions::for_machines(ranks).total_bytes()));
  print("block_bytes", static_cast<double>(sizeof(hfcomm::engines::layout::rank_block)));
}

}  // namespace

int main(int count, char** arguments) {
  const std::string_view task = count > 1 ? arguments[1] : "";
  try {
    if (task == "link" && count == 4) {
      link_measurement(std::atoi(arguments[2]), arguments[3]).run();
    } else if (task == "start") {
      return start_rank();
    } else if (task == "sizes" && count == 3) {
      print_memory(std::atoi(arguments[2]));
    } else {
      std::fputs("scale_probe link MACHINE FOLDER | start | sizes RANKS\n", stderr);
      return 2;
    }
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "scale_probe: %s\n", problem.what());
    return 1;
  }
  return 0;
}
