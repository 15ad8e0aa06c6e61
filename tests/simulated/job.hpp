// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <poll.h>

#include <hfcomm/engine/links/link.hpp>
#include <hfcomm/rendezvous/address_exchange.hpp>
#include <hfcomm/rendezvous/credentials.hpp>
#include <hfcomm/rendezvous/crypto_libraries.hpp>
#include <hfcomm/rendezvous/job_plan.hpp>
#include <hfcomm/rendezvous/machine_start.hpp>

/// A job of many machines, of which the root's is real, and one thread plays the leaders of all others.
namespace simulated {

namespace engines = hfcomm::engines;
namespace rendezvous = hfcomm::rendezvous;

/// A link that carries nothing: transfers are under way until they are given up.
class idle_link final : public engines::link {
 public:
  static constexpr std::string_view link_name = "idle";

  explicit idle_link(std::vector<std::byte> address) : link(link_name), address_(std::move(address)) {}

  [[nodiscard]] std::vector<std::byte> address() const override { return address_; }

  void open(int /*self*/, std::vector<std::vector<std::byte>> addresses) override {
    under_way_.resize(addresses.size());
  }

  void start(engines::link_transfer& one) noexcept override {
    under_way_[static_cast<std::size_t>(one.machine)].push_back(&one);
  }

  void cancel(engines::link_transfer& /*receive*/) noexcept override {}

  bool progress() noexcept override { return false; }

  [[nodiscard]] bool prepare_sleep() noexcept override { return true; }

  void sleep(int descriptor, std::chrono::microseconds most) noexcept override {
    pollfd event{descriptor, POLLIN, 0};
    const auto time = std::max<std::int64_t>(most.count(), 0);
    const timespec limit{time / 1'000'000, time % 1'000'000 * 1000};
    ::ppoll(&event, 1, &limit, nullptr);
  }

  void give_up(int machine) noexcept override {
    for (engines::link_transfer* one : std::exchange(under_way_[static_cast<std::size_t>(machine)], {})) {
      one->failed = true;
      one->done.store(true);
    }
  }

  [[nodiscard]] int failing_machine() const noexcept override { return -1; }

 private:
  std::vector<std::byte> address_;
  std::vector<std::vector<engines::link_transfer*>> under_way_;  // by machine
};

/// Calls a function with the root's address.
class announced_address final : public rendezvous::address_exchange {
 public:
  using receiver = std::function<void(const rendezvous::root_address&)>;

  explicit announced_address(receiver tell) : tell_(std::move(tell)) {}

  [[nodiscard]] bool needs_all_ranks() const noexcept override { return false; }
  void publish(const rendezvous::root_address& address) override { tell_(address); }
  void look_up() override {}
  void attend() override {}
  bool is_done() override { return true; }

 private:
  receiver tell_;
};

/// A job. The root's machine has rank 0 alone; the others are dealt to the other machines in turn.
struct job {
  std::string key;
  int machines = 2;
  int world_size = 2;
  std::size_t address_bytes = 300;  ///< Of a link. UCX has about 80 with one TCP interface, and more with RDMA.
  std::string secret = "the secret of this job: 0123456789";  ///< Empty: HFCOMM_AUTH=none.
  bool has_small_buffers = false;  ///< A connection takes some 40 KiB that the other end does not read.

  [[nodiscard]] rendezvous::credentials proof() const {
    return secret.empty() ? rendezvous::credentials::none()
                          : rendezvous::credentials(secret, "the job", rendezvous::find_crypto());
  }

  [[nodiscard]] std::vector<std::byte> link_address(int machine) const {
    std::vector<std::byte> address(address_bytes);
    auto state = static_cast<std::uint32_t>(machine);
    for (std::byte& one : address) {
      state = state * 1664525U + 1013904223U;
      one = static_cast<std::byte>(state >> 24);
    }
    return address;
  }

  /// Returns what the leader of a machine but the root's says of it.
  [[nodiscard]] rendezvous::machine_part part(int machine) const {
    rendezvous::machine_part part;
    part.leader = machine;
    part.host = "machine" + std::to_string(machine);
    for (int rank = machine; rank < world_size; rank += machines - 1) {
      part.ranks.push_back(rank);
      part.pids.push_back(100'000 + rank);
    }
    part.link = idle_link::link_name;
    part.link_address = link_address(machine);
    return part;
  }

  /// Returns the options of rank 0.
  [[nodiscard]] rendezvous::job_options root_options(announced_address::receiver tell) const {
    rendezvous::job_options options;
    options.local_key = "simulated " + key;
    options.job_key = key;
    options.world_size = world_size;
    options.timeout = std::chrono::seconds(60);
    options.has_several_machines = true;
    options.exchange = std::make_unique<announced_address>(std::move(tell));
    options.proof = proof();
    options.make_link = [address = link_address(0)] { return std::make_unique<idle_link>(address); };
    options.own_addresses = [] { return std::vector<std::string>{"127.0.0.1"}; };
    return options;
  }
};

}  // namespace simulated
