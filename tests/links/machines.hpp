// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <hfcomm/engine/links/link.hpp>

/// Machines of a test: each has one end of a link, and is a process, or a thread.
namespace machines {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;
using hfcomm::engines::link;
using hfcomm::engines::link_transfer;

inline constexpr int most_machines = 8;

/// Throws where a claim of a case is false.
inline void expect(bool is_true, const std::string& claim) {
  if (!is_true) {
    throw std::runtime_error("not true: " + claim);
  }
}

/// Memory that the machines of one test share: for addresses and for barriers, beside the link that is tested. A new
/// one is all zeros.
struct meeting {
  struct published {
    std::atomic<std::size_t> length;
    std::array<std::byte, 4096> bytes;
  };
  std::array<published, most_machines> addresses;
  std::array<std::atomic<int>, most_machines> processes;
  std::array<std::atomic<int>, 64> arrived;  // by barrier
  std::atomic<std::size_t> number;           // of a case
  std::atomic<bool> has_failed;

  /// Returns one in the file `path`, which other machines may have made before; without a path, one for forked
  /// processes.
  static meeting& map(const char* path = nullptr) {
    const int file = path != nullptr ? ::open(path, O_RDWR | O_CREAT, 0600) : ::memfd_create("meeting", MFD_CLOEXEC);
    expect(file >= 0 && ::ftruncate(file, sizeof(meeting)) == 0, "the shared memory is there");
    void* const memory = ::mmap(nullptr, sizeof(meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    expect(memory != MAP_FAILED, "the shared memory is mapped");
    return *static_cast<meeting*>(memory);
  }
};

template <class Condition>
void wait_for(meeting& together, std::chrono::milliseconds most, Condition is_true, const std::string& what) {
  for (const auto end = clock::now() + most; !is_true(); std::this_thread::sleep_for(200us)) {
    expect(!together.has_failed, "no other machine failed while this one waited until " + what);
    expect(clock::now() < end, what + ", in time");
  }
}

/// One machine of a case.
struct machine {
  meeting& together;
  int self;
  int count;
  std::unique_ptr<link> carrier{};
  bool is_thread = false;
  int barriers = 0;

  /// Opens the link.
  void open(std::unique_ptr<link> made) {
    carrier = std::move(made);
    const auto own = carrier->address();
    expect(!own.empty() && own.size() <= 4096, "an address has at most 4 KiB");
    auto& place = together.addresses.at(static_cast<std::size_t>(self));
    std::memcpy(place.bytes.data(), own.data(), own.size());
    together.processes.at(static_cast<std::size_t>(self)) = ::getpid();
    place.length = own.size();
    std::vector<std::vector<std::byte>> all;
    for (int other = 0; other < count; ++other) {
      auto& theirs = together.addresses.at(static_cast<std::size_t>(other));
      wait_for(together, 20s, [&] { return theirs.length != 0; }, "all machines have published their addresses");
      all.emplace_back(theirs.bytes.begin(), theirs.bytes.begin() + static_cast<std::ptrdiff_t>(theirs.length.load()));
    }
    carrier->open(self, std::move(all));
  }

  /// Waits until all machines, but for `lost` of them, are here.
  void barrier(int lost = 0) {
    await_machines(count - lost, [] {});
  }

  /// The same for all machines, while the link goes on to work: what the others wait for may need that.
  void barrier_of_working() {
    await_machines(count, [this] { carrier->progress(); });
  }

  /// Waits until as many machines are here, and calls `meanwhile` again and again.
  template <class Meanwhile>
  void await_machines(int machines, Meanwhile meanwhile) {
    auto& arrived = together.arrived.at(static_cast<std::size_t>(barriers++));
    ++arrived;
    const auto are_here = [&] {
      meanwhile();
      return arrived >= machines;
    };
    wait_for(together, 30s, are_here, "all machines are at a barrier");
  }

  void signal(int other, int number) const {
    if (!is_thread) {
      ::kill(together.processes.at(static_cast<std::size_t>(other)), number);
    }
  }
};

/// A case: what each of its machines does.
using body = std::function<void(machine&)>;

/// Returns bytes that depend on their place and on `seed`.
inline std::vector<std::byte> filled(std::size_t length, std::uint64_t seed) {
  std::vector<std::byte> bytes(length);
  std::uint64_t word = (seed + 1) * 0xC2B2AE3D27D4EB4Fu;
  for (std::size_t place = 0; place < length; place += sizeof(word)) {
    word = word * 6364136223846793005u + 1442695040888963407u;
    std::memcpy(bytes.data() + place, &word, std::min(sizeof(word), length - place));
  }
  return bytes;
}

/// Transfers of one machine, with their memory.
class transfers {
 public:
  explicit transfers(machine& here) : here_(here) {}
  transfers(const transfers&) = delete;
  transfers& operator=(const transfers&) = delete;
  /// Ends the link where it still needs the memory.
  ~transfers() {
    if (!are_done()) {
      here_.carrier.reset();
    }
  }

  link_transfer& send(int to, std::uint32_t channel, std::vector<std::byte> bytes) {
    return start(to, channel, std::move(bytes), true);
  }
  link_transfer& receive(int from, std::uint32_t channel, std::size_t length) {
    return start(from, channel, std::vector<std::byte>(length), false);
  }
  [[nodiscard]] std::vector<std::byte>& memory(std::size_t index) { return all_.at(index).memory; }
  [[nodiscard]] link_transfer& operator[](std::size_t index) { return all_.at(index).one; }
  [[nodiscard]] std::size_t size() const { return all_.size(); }
  [[nodiscard]] bool are_done() const {
    for (const auto& one : all_) {
      if (!one.one.done) {
        return false;
      }
    }
    return true;
  }
  [[nodiscard]] bool has_failed() const {
    for (const auto& one : all_) {
      if (one.one.failed) {
        return true;
      }
    }
    return false;
  }

  /// Waits until all are done, and expects that none failed.
  void finish(std::chrono::milliseconds most = 60s) {
    const auto end = clock::now() + most;
    while (!are_done()) {
      expect(clock::now() < end, "all transfers are done in time");
      expect(!here_.together.has_failed, "no other machine failed meanwhile");
      if (!here_.carrier->progress() && here_.carrier->prepare_sleep()) {
        here_.carrier->sleep(-1, 20ms);
      }
    }
    expect(!has_failed(), "no transfer failed");
  }

 private:
  struct entry {
    std::vector<std::byte> memory;
    link_transfer one{};
  };

  link_transfer& start(int other, std::uint32_t channel, std::vector<std::byte> bytes, bool sends) {
    auto& added = all_.emplace_back();
    added.memory = std::move(bytes);
    added.one.machine = other;
    added.one.channel = channel;
    added.one.bytes = added.memory;
    added.one.sends = sends;
    here_.carrier->start(added.one);
    return added.one;
  }

  machine& here_;
  std::deque<entry> all_;
};

/// Lets a link work for a while.
inline void work(machine& here, std::chrono::milliseconds time) {
  for (const auto end = clock::now() + time; clock::now() < end;) {
    if (!here.carrier->progress() && here.carrier->prepare_sleep()) {
      here.carrier->sleep(-1, 5ms);
    }
  }
}

}  // namespace machines
