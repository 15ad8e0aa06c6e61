// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstring>

#include <hfcomm/engines/engine.hpp>

namespace hfcomm::engines {

/// A group of one: every operation works, nothing leaves the process.
class self final : public host_engine {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "self"; }
  [[nodiscard]] int rank() const noexcept override { return 0; }
  [[nodiscard]] int size() const noexcept override { return 1; }
  [[nodiscard]] std::uint64_t sequence() const noexcept override { return sequence_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool broken() const noexcept override { return false; }
  [[nodiscard]] std::string matching_call(int /*rank*/) const override { return {}; }

  void exchange(const operation& call, std::span<const std::byte> contribution, receiver& out) override {
    ++sequence_;
    if (call.receives(0)) {
      out.receive(0, contribution, 0, contribution.size());
    }
  }

  void reduce(const operation& /*call*/, std::span<const std::byte> in, std::span<std::byte> out) override {
    ++sequence_;
    if (!in.empty() && in.data() != out.data()) {
      std::memmove(out.data(), in.data(), in.size());
    }
  }

  void prepare(const operation& /*call*/) override {}
  void announce(const operation& /*call*/, const std::string* /*failure*/) override { ++sequence_; }
  void await(const operation& /*call*/, int /*source*/) override { ++sequence_; }

  std::shared_ptr<host_engine> subgroup(const operation& /*call*/, std::span<const int> members) override {
    ++sequence_;
    return members.empty() ? nullptr : std::make_shared<self>();
  }

  void cancel() noexcept override {}
  void set_polite(bool /*polite*/) noexcept override {}

 private:
  std::atomic<std::uint64_t> sequence_{0};  // atomic for a second thread that is refused and says so
};

}  // namespace hfcomm::engines
