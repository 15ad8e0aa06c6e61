// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <poll.h>

#include <hfcomm/engine/links/link.hpp>
#include <hfcomm/engine/links/mpi_library.hpp>
#include <hfcomm/machine/waiting.hpp>

namespace hfcomm::engines {

/// The link over MPI's messages. `open` waits for all machines.
///
/// MPI cannot take a send back, nor a receive that has begun. So the bytes go through memory of the link, which such a
/// transfer leaves to MPI for ever when it is given up. Receives that have not begun are cancelled, so that a job that
/// ends well leaves nothing, and MPI_Finalize can be called. Sends are synchronous: a standard send may be done while
/// its bytes wait in this process until it calls MPI again, and a rank that computes does not.
class mpi final : public link {
 public:
  mpi() : link("mpi") {
    mpi_library::require();
    int* largest_tag = nullptr;
    int is_known = 0;
    ::MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &largest_tag, &is_known);
    if (is_known == 0 || *largest_tag < (1 << 20) - 1) {
      throw_link_error(name(), "this MPI has fewer than 2^20 tags");
    }
    mpi_library::count_link(1);
  }

  ~mpi() override {
    give_up_if([](int) { return true; });
    mpi_library::count_link(-1);
  }

  [[nodiscard]] std::vector<std::byte> address() const override {
    const int rank = world_rank();
    std::vector<std::byte> bytes(sizeof(rank));
    std::memcpy(bytes.data(), &rank, sizeof(rank));
    return published_address(name(), bytes);
  }

  void open(int self, std::vector<std::vector<std::byte>> addresses) override {
    addresses = own_addresses(name(), std::move(addresses));
    std::vector<int> ranks;
    int size = 0;
    ::MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (const auto& address : addresses) {
      int rank = -1;
      std::memcpy(&rank, address.data(), std::min(address.size(), sizeof(rank)));
      if (rank < 0 || rank >= size || std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) {
        throw_link_error(name(),
                         "the machines are not in one MPI_COMM_WORLD; start all of them with one mpirun, or set "
                         "HFCOMM_LINK to another link");
      }
      ranks.push_back(rank);
    }
    if (ranks.at(static_cast<std::size_t>(self)) != world_rank()) {
      throw_link_error(name(), "another process has opened the address of this one");
    }
    is_gone_.resize(ranks.size(), false);
    // Not MPI_Comm_dup, in which all processes would have to take part.
    MPI_Group world = MPI_GROUP_NULL;
    MPI_Group group = MPI_GROUP_NULL;
    ::MPI_Comm_group(MPI_COMM_WORLD, &world);
    ::MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &group);
    const int status = ::MPI_Comm_create_group(MPI_COMM_WORLD, group, 0, &machines_);
    ::MPI_Group_free(&group);
    ::MPI_Group_free(&world);
    if (status != MPI_SUCCESS) {
      throw_link_error(name(), "MPI_Comm_create_group failed");
    }
    ::MPI_Comm_set_errhandler(machines_, MPI_ERRORS_RETURN);
  }

  void start(link_transfer& one) noexcept override {
    one.native = nullptr;
    transfer added{&one, std::make_unique_for_overwrite<std::byte[]>(one.bytes.size()), 1};
    const std::size_t first = messages_.size();
    bool succeeds = !is_gone_[static_cast<std::size_t>(one.machine)];
    if (succeeds && one.sends) {
      std::memcpy(added.memory.get(), one.bytes.data(), one.bytes.size());
    }
    for (std::size_t begin = 0; succeeds && begin < one.bytes.size(); begin += largest_message) {
      succeeds = start_message(added, begin);
    }
    one.failed = !succeeds;
    added.left = messages_.size() - first;
    if (added.left == 0) {
      one.done.store(true, std::memory_order_release);
      return;
    }
    auto* const kept = new transfer(std::move(added));
    for (std::size_t index = first; index < messages_.size(); ++index) {
      messages_[index].of = kept;
    }
  }

  /// Does nothing: who cancels asks for `takes_any_channel`.
  void cancel(link_transfer& /*receive*/) noexcept override {}

  /// Tests one message after the other: MPI_Testsome would report errors to the handler of MPI_COMM_WORLD.
  bool progress() noexcept override {
    if (messages_.empty()) {
      serve_others();
      return false;
    }
    bool has_moved = false;
    for (std::size_t which = 0; which < messages_.size(); ++which) {
      message& one = messages_[which];
      int has_ended = 0;
      MPI_Status status{};
      const int result = ::MPI_Test(&one.request, &has_ended, &status);
      if (result != MPI_SUCCESS || has_ended != 0) {
        finish_message(one, result == MPI_SUCCESS && has_right_length(status, one));
        has_moved = true;
      }
    }
    if (has_moved) {
      pause_.store(shortest_pause, std::memory_order_relaxed);
      remove_ended();
    }
    return has_moved;
  }

  [[nodiscard]] bool prepare_sleep() noexcept override { return true; }

  /// MPI tells nobody of news: this returns soon, so that somebody asks for them.
  void sleep(int descriptor, std::chrono::microseconds most) noexcept override {
    const auto pause = pause_.load(std::memory_order_relaxed);
    pause_.store(std::min(pause * 5 / 4, longest_pause), std::memory_order_relaxed);
    pollfd event{descriptor, POLLIN, 0};
    detail::poll_events({&event, 1}, std::min<std::chrono::nanoseconds>(most, std::chrono::nanoseconds(pause)));
  }

  void give_up(int machine) noexcept override {
    is_gone_[static_cast<std::size_t>(machine)] = true;
    mpi_library::give_up();
    give_up_if([&](int other) { return other == machine; });
  }

  [[nodiscard]] int failing_machine() const noexcept override { return -1; }

 private:
  static constexpr std::size_t largest_message = std::size_t{1} << 30;  // MPI counts with int

  /// A transfer that is not done.
  struct transfer {
    link_transfer* one;
    std::unique_ptr<std::byte[]> memory;
    std::size_t left;  // messages
  };

  struct message {
    MPI_Request request;
    int length;
    transfer* of;  // null where it has ended
  };

  static int world_rank() noexcept {
    int rank = -1;
    ::MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
  }

  bool start_message(const transfer& added, std::size_t begin) noexcept {
    const link_transfer& one = *added.one;
    const int length = static_cast<int>(std::min(largest_message, one.bytes.size() - begin));
    const int tag = static_cast<int>(one.channel);
    std::byte* const memory = added.memory.get() + begin;
    MPI_Request request = MPI_REQUEST_NULL;
    const int result = one.sends ? ::MPI_Issend(memory, length, MPI_BYTE, one.machine, tag, machines_, &request)
                                 : ::MPI_Irecv(memory, length, MPI_BYTE, one.machine, tag, machines_, &request);
    if (result != MPI_SUCCESS) {
      return false;
    }
    messages_.push_back({request, length, nullptr});
    return true;
  }

  /// Lets MPI answer the other machines, whose sends may wait for the acknowledgement of what has arrived here. Needed
  /// where nothing is under way, so that nothing else calls MPI.
  void serve_others() noexcept {
    int has_message = 0;
    ::MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, machines_, &has_message, MPI_STATUS_IGNORE);
  }

  static bool has_right_length(const MPI_Status& status, const message& one) noexcept {
    int length = 0;
    return one.of->one->sends || (::MPI_Get_count(&status, MPI_BYTE, &length) == MPI_SUCCESS && length == one.length);
  }

  static void finish_message(message& part, bool succeeds) noexcept {
    transfer& of = *std::exchange(part.of, nullptr);
    link_transfer& one = *of.one;
    one.failed = one.failed || !succeeds;
    if (--of.left == 0) {
      if (!one.sends && !one.failed) {
        std::memcpy(one.bytes.data(), of.memory.get(), one.bytes.size());
      }
      delete &of;
      one.done.store(true, std::memory_order_release);
    }
  }

  void remove_ended() noexcept {
    std::erase_if(messages_, [](const message& one) { return one.of == nullptr; });
  }

  template <class Chosen>
  void give_up_if(Chosen is_chosen) noexcept {
    for (message& one : messages_) {
      if (is_chosen(one.of->one->machine)) {
        if (one.of->one->sends || !cancel(one.request)) {
          static_cast<void>(one.of->memory.release());  // MPI may still use it
          mpi_library::give_up();
        }
        finish_message(one, false);
      }
    }
    remove_ended();
  }

  /// Takes a receive back. Returns whether MPI has let go of its memory.
  static bool cancel(MPI_Request& receive) noexcept {
    int has_ended = 0;
    return ::MPI_Cancel(&receive) == MPI_SUCCESS &&
           ::MPI_Test(&receive, &has_ended, MPI_STATUS_IGNORE) == MPI_SUCCESS && has_ended != 0;
  }

  static constexpr long shortest_pause = 20'000;  // ns
  static constexpr long longest_pause = 200'000;

  MPI_Comm machines_ = MPI_COMM_NULL;  // never freed, because that waits for the other machines
  std::vector<bool> is_gone_;
  std::vector<message> messages_;            // under way
  std::atomic<long> pause_{shortest_pause};  // of the next sleep
};

inline const bool has_mpi_link = register_link({
    .name = "mpi",
    .how_to_install = "libopenmpi-dev or libmpich-dev",
    .is_meant = &mpi_library::is_meant,
    .prepare = &mpi_library::require,
    .abandon = &mpi_library::give_up,
    .make = []() -> std::unique_ptr<link> { return std::make_unique<mpi>(); },
});

}  // namespace hfcomm::engines
