// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <hfcomm/engine/host_engine.hpp>
#include <hfcomm/engine/reduction/kernel.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/messages.hpp>

namespace hfcomm::engines {

/// The messages of a group of one, to itself. They go the way of all others, over memory of their own, which the first
/// message makes. Any thread may call.
class messages_to_self {
 public:
  messages_to_self() = default;
  messages_to_self(const messages_to_self&) = delete;
  messages_to_self& operator=(const messages_to_self&) = delete;

  /// Returns what carries them. A new one after a deadline: no other rank could be out of step. And a new one in the
  /// child of a fork, which is a group of one, too.
  std::shared_ptr<point_to_point> get() {
    std::unique_ptr<owned_messages> old;  // ended after the lock: a continuation of its transfers may come back here
    const std::scoped_lock lock(mutex_);
    const bool is_usable =
        owner_ && started_messages::of(*owner_)->in_creating_process() && !started_messages::of(*owner_)->is_broken();
    if (!is_usable) {
      old = std::exchange(owner_, make());
    }
    return started_messages::of(*owner_);
  }

  void abandon(const error_context& context) const noexcept {
    const std::scoped_lock lock(mutex_);
    if (owner_) {
      owner_->abandon(context);
    }
  }

 private:
  static std::unique_ptr<owned_messages> make() {
    auto roster_segment = rendezvous::shared_segment::anonymous(rendezvous::roster::bytes_for(1));
    rendezvous::roster::create_in(*roster_segment, 1);
    auto job = std::make_shared<local_job>();
    job->roster = std::make_shared<rendezvous::roster>(std::move(roster_segment), 1, 0);
    job->roster->enter();
    const auto sizes = layout::dimensions::for_ranks(1);
    auto memory = rendezvous::shared_segment::anonymous(sizes.total_bytes());
    layout::create_in(*memory, sizes);
    return std::make_unique<started_messages>(
        std::make_shared<shared_memory_health>(std::move(memory), std::move(job), std::vector<int>{0}, 0));
  }

  mutable std::mutex mutex_;
  std::unique_ptr<owned_messages> owner_;  // once there is a message
};

/// The health of a group of one, which has no other rank to lose, and its messages.
class health_of_one final : public group_health {
 public:
  health_of_one() : group_health(0, 1) {}

  [[nodiscard]] messages_to_self& messages() noexcept { return messages_; }
  [[nodiscard]] bool is_broken() const noexcept override { return false; }
  void abandon(const error_context& context) const noexcept override { messages_.abandon(context); }
  void break_by_this_rank(const error_context& /*context*/, const std::string& /*what*/) const noexcept override {}
  void break_for_timeout(const error_context& /*context*/, const std::string& /*what*/,
                         const std::vector<int>& /*missing*/) const noexcept override {}
  void check_device_operation(const error_context& /*context*/, std::uint64_t /*number*/) const override {}
  [[nodiscard]] device_board* board_of(int /*rank*/) const noexcept override { return nullptr; }

 private:
  messages_to_self messages_;
};

/// The engine of a group of one: every operation works, nothing leaves the process.
class self final : public host_engine {
 public:
  self() : self(std::make_shared<health_of_one>()) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "self"; }
  [[nodiscard]] std::uint64_t sequence() const noexcept override { return sequence_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::string matching_call(int /*rank*/) const override { return {}; }
  [[nodiscard]] bool same_name_everywhere(bool /*accept_failures*/) const noexcept override { return true; }

  void exchange(const operation& call, std::span<const std::byte> contribution, receiver& out) {
    ++sequence_;
    if (call.receives(0)) {
      deliver(call, contribution, out);
    }
  }

  void reduce(const operation& call, std::span<const std::byte> in, std::span<std::byte> out) {
    ++sequence_;
    if (in.empty()) {
      return;
    }
    if (call.op == reduce_kind::premultiplied_sum || detail::is_logical(call.op)) {
      const std::byte* const input = in.data();
      detail::run_kernel(call.kernel, call.op, {&input, 1}, out.data(), in.size() / size_of(call.element),
                         {&call.factor, 1});
    } else if (in.data() != out.data()) {
      std::memmove(out.data(), in.data(), in.size());
    }
  }

  void all_to_all_v(const operation& call, const rank_parts& mine, receiver& out) {
    ++sequence_;
    if (mine.lengths_only) {
      return;  // the caller has compared the lengths of a rank's part for itself
    }
    deliver(call, mine.part_for(call, 0), out);
  }

  void reduce_scatter(const operation& call, std::span<const std::byte> in, std::span<const std::uint64_t> /*parts*/,
                      std::span<std::byte> out) {
    reduce(call, in, out);
  }

  void prepare(const operation& /*call*/) override {}
  void announce(const operation& /*call*/, const std::string* /*failure*/) override { ++sequence_; }
  void wait_for(const operation& /*call*/, int /*source*/) override { ++sequence_; }

  std::shared_ptr<host_engine> subgroup(const operation& /*call*/, std::span<const int> members) {
    ++sequence_;
    return members.empty() ? nullptr : std::make_shared<self>();
  }

  [[nodiscard]] std::shared_ptr<point_to_point> messages() { return health_->messages().get(); }

  void cancel() noexcept override {}
  [[nodiscard]] std::shared_ptr<buffer_memory> memory() const override { return ordinary_memory::of_process(); }

 private:
  static void deliver(const operation& call, std::span<const std::byte> part, receiver& out) {
    if (call.content == payload::uneven) {
      const std::uint64_t length = part.size();
      out.expect({&length, 1});
    }
    out.receive(0, part, 0, part.size());
  }

  explicit self(std::shared_ptr<health_of_one> health) : host_engine(kind::self, health), health_(std::move(health)) {}

  std::shared_ptr<health_of_one> health_;
  std::atomic<std::uint64_t> sequence_{0};  // atomic for a second thread that is refused and says so
};

}  // namespace hfcomm::engines
