// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <poll.h>
#include <pthread.h>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/engine/links/gloo_mesh.hpp>
#include <hfcomm/engine/links/gloo_waiters.hpp>
#include <hfcomm/engine/links/link.hpp>
#include <hfcomm/machine/network_interfaces.hpp>
#include <hfcomm/machine/waiting.hpp>

namespace hfcomm::engines {

/// Blocks SIGPIPE in this thread, and in threads that it starts: Gloo writes to sockets without MSG_NOSIGNAL.
class without_sigpipe {
 public:
  without_sigpipe() {
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    sigset_t pending{};
    ::sigpending(&pending);
    was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  without_sigpipe(const without_sigpipe&) = delete;
  without_sigpipe& operator=(const without_sigpipe&) = delete;
  ~without_sigpipe() {
    const timespec none{};
    if (!was_pending_) {
      ::sigtimedwait(&pipe_, nullptr, &none);
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_{};
  sigset_t before_{};
  bool was_pending_ = false;
};

/// The link over Gloo's TCP transport. `open` waits for all machines, up to 60 s. A length that sender and receiver
/// disagree about ends the process: Gloo throws in a thread of its own.
class gloo final : public link {
 public:
  gloo() : link("gloo"), mesh_(numeric_host()) {
    const without_sigpipe also_in_its_thread;
    ::gloo::transport::tcp::attr options;
    options.hostname = numeric_host();
    try {
      device_ = ::gloo::transport::tcp::CreateDevice(options);
    } catch (const std::exception& problem) {
      throw_link_error(name(), problem.what());
    }
  }

  ~gloo() override {
    for (int machine = 0; context_ != nullptr && machine < context_->size; ++machine) {
      if (machine != context_->rank) {
        give_up(machine);
      }
    }
  }

  [[nodiscard]] std::vector<std::byte> address() const override {
    const auto text = mesh_.address();
    return published_address(name(), std::as_bytes(std::span(text)));
  }

  void open(int self, std::vector<std::vector<std::byte>> addresses) override {
    addresses = own_addresses(name(), std::move(addresses));
    const int count = static_cast<int>(addresses.size());
    is_gone_.resize(addresses.size(), false);
    const without_sigpipe guard;
    try {
      context_ = device_->createContext(self, count);
      context_->setTimeout(std::chrono::seconds(60));
      const std::string root(reinterpret_cast<const char*>(addresses[0].data()), addresses[0].size());
      const auto own = pair_addresses(self, count);
      const auto all = mesh_.all_gather(self, count, own, root.substr(0, root.find('\0')));
      for (int other = 0; other < count; ++other) {
        if (other != self) {
          const std::byte* const theirs = all.data() + own.size() * static_cast<std::size_t>(other) +
                                          gloo_mesh::address_bytes * static_cast<std::size_t>(self);
          std::uint16_t length = 0;
          std::memcpy(&length, theirs, sizeof(length));
          const auto* const text = reinterpret_cast<const char*>(theirs + sizeof(length));
          context_->getPair(other)->connect(
              {text, text + std::min<std::size_t>(length, gloo_mesh::address_bytes - sizeof(length))});
        }
      }
    } catch (const error&) {
      throw;
    } catch (const std::exception& problem) {
      throw_link_error(name(), problem.what());
    }
  }

  void start(link_transfer& one) noexcept override {
    const without_sigpipe guard;
    try {
      if (is_gone_[static_cast<std::size_t>(one.machine)]) {
        one.finish(false);
        return;
      }
      auto buffer = context_->createUnboundBuffer(one.bytes.data(), one.bytes.size());
      if (one.sends) {
        buffer->send(one.machine, one.channel, 0, one.bytes.size());
      } else {
        buffer->recv(one.machine, one.channel, 0, one.bytes.size());
      }
      waiters_.add(one, std::move(buffer));
    } catch (const std::exception&) {  // the connection is broken
      one.finish(false);
    }
  }

  /// Does nothing: who cancels asks for `takes_any_channel`.
  void cancel(link_transfer& /*receive*/) noexcept override {}

  bool progress() noexcept override { return waiters_.take_news(); }

  [[nodiscard]] bool prepare_sleep() noexcept override { return true; }

  void sleep(int descriptor, std::chrono::microseconds most) noexcept override {
    std::array<pollfd, 2> events{{{descriptor, POLLIN, 0}, {waiters_.descriptor(), POLLIN, 0}}};
    detail::poll_events(events, most);
  }

  void give_up(int machine) noexcept override {
    is_gone_[static_cast<std::size_t>(machine)] = true;
    try {
      context_->getPair(machine)->close();  // what it has begun to receive is not touched any more
    } catch (const std::exception&) {       // NOLINT(bugprone-empty-catch): it was broken
    }
    waiters_.give_up(machine);
  }

  [[nodiscard]] int failing_machine() const noexcept override {
    const int failing = waiters_.failing_machine();
    return failing >= 0 && !is_gone_[static_cast<std::size_t>(failing)] ? failing : -1;
  }

 private:
  /// Returns the address to listen at. Gloo would take the host's name, which is often an address of the loopback
  /// interface.
  static std::string numeric_host() {
    auto chosen = rendezvous::chosen_interface();
    if (chosen.address.empty()) {
      throw_link_error("gloo", chosen.interface.empty() ? "this machine has no network interface but the loopback one"
                                                        : detail::concat({"HFCOMM_INTERFACE=", chosen.interface,
                                                                          " is no interface that is up"}));
    }
    return chosen.address;
  }

  /// Makes the pairs and returns their addresses, in the order of the machines.
  std::vector<std::byte> pair_addresses(int self, int count) {
    std::vector<std::byte> all(gloo_mesh::address_bytes * static_cast<std::size_t>(count));
    for (int other = 0; other < count; ++other) {
      if (other != self) {
        const auto bytes = context_->createPair(other)->address().bytes();
        const auto length = static_cast<std::uint16_t>(bytes.size());
        if (bytes.size() > gloo_mesh::address_bytes - sizeof(length)) {
          throw_link_error(name(), "an address of Gloo is too long");
        }
        std::byte* const place = all.data() + gloo_mesh::address_bytes * static_cast<std::size_t>(other);
        std::memcpy(place, &length, sizeof(length));
        std::memcpy(place + sizeof(length), bytes.data(), bytes.size());
      }
    }
    return all;
  }

  gloo_mesh mesh_;
  std::shared_ptr<::gloo::transport::Device> device_;
  std::shared_ptr<::gloo::transport::Context> context_;
  std::vector<bool> is_gone_;
  gloo_waiters waiters_;
};

inline link_kind gloo_kind() {
  return {
      .name = "gloo",
      .how_to_install = "libgloo-dev",
      .make = []() -> std::unique_ptr<link> { return std::make_unique<gloo>(); },
  };
}

}  // namespace hfcomm::engines
