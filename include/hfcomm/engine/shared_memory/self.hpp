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
#include <hfcomm/engine/shared_memory/point_to_point.hpp>
#include <hfcomm/engine/shared_memory/shared_heap.hpp>

namespace hfcomm::engines {

/// A group of one: every operation works, nothing leaves the process.
class self final : public host_engine {
 public:
  self() = default;
  ~self() override {
    if (mail_) {
      mail_->stop();
    }
  }

  [[nodiscard]] std::string_view name() const noexcept override { return "self"; }
  [[nodiscard]] int rank() const noexcept override { return 0; }
  [[nodiscard]] int size() const noexcept override { return 1; }
  [[nodiscard]] std::uint64_t sequence() const noexcept override { return sequence_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool broken() const noexcept override { return false; }
  [[nodiscard]] std::string matching_call(int /*rank*/) const override { return {}; }
  [[nodiscard]] bool same_name_everywhere(bool /*failures_count*/) const noexcept override { return true; }

  void exchange(const operation& call, std::span<const std::byte> contribution, receiver& out) override {
    ++sequence_;
    if (call.receives(0)) {
      out.receive(0, contribution, 0, contribution.size());
    }
  }

  void reduce(const operation& call, std::span<const std::byte> in, std::span<std::byte> out) override {
    ++sequence_;
    if (in.empty()) {
      return;
    }
    if (call.op == reduce_kind::premultiplied_sum) {
      const std::byte* const input = in.data();
      detail::run_kernel(call.kernel, call.op, {&input, 1}, out.data(), in.size() / size_of(call.element),
                         {&call.factor, 1});
    } else if (in.data() != out.data()) {
      std::memmove(out.data(), in.data(), in.size());
    }
  }

  void deal(const operation& call, const parcels& mine, receiver& out) override {
    ++sequence_;
    if (mine.lengths_alone) {
      return;  // the caller has compared a rank's part for itself
    }
    const std::span<const std::byte> part = mine.part_for(call, 0);
    out.receive(0, part, 0, part.size());
  }

  void reduce_scatter(const operation& call, std::span<const std::byte> in, std::span<const std::uint64_t> /*parts*/,
                      std::span<std::byte> out) override {
    reduce(call, in, out);
  }

  void prepare(const operation& /*call*/) override {}
  [[nodiscard]] std::span<std::byte> stage(const operation& /*call*/) override { return {}; }
  void announce(const operation& /*call*/, const std::string* /*failure*/) override { ++sequence_; }
  void await(const operation& /*call*/, int /*source*/) override { ++sequence_; }

  std::shared_ptr<host_engine> subgroup(const operation& /*call*/, std::span<const int> members) override {
    ++sequence_;
    return members.empty() ? nullptr : std::make_shared<self>();
  }

  void post(std::span<const std::shared_ptr<transfer>> transfers) override {
    const auto office = mail();
    point_to_point::post(office, transfers);
  }
  void complete(std::span<const std::shared_ptr<transfer>> transfers) override { mail()->complete(transfers); }

  void abandon(const error_context& context) noexcept override {
    const std::scoped_lock lock(mail_mutex_);
    if (mail_) {
      mail_->abandon(context);
    }
  }
  void cancel() noexcept override {}
  void condemn(const error_context& /*context*/, const std::string& /*what*/) noexcept override {}
  void expire(const error_context& /*context*/, const std::string& /*what*/,
              const std::vector<int>& /*missing*/) noexcept override {}
  void look(const error_context& /*context*/, std::uint64_t /*number*/) const override {}
  [[nodiscard]] device_board* board(int /*rank*/) const noexcept override { return nullptr; }
  [[nodiscard]] std::shared_ptr<std::pmr::memory_resource> memory() const override { return memory_; }
  void set_polite(bool /*polite*/) noexcept override {}

 private:
  /// Messages to oneself go through the same post office as all others, over memory of our own.
  std::shared_ptr<point_to_point> mail() {
    std::unique_lock lock(mail_mutex_);
    // After a deadline, a new one: a group of one has nobody who could be out of step. And the child of a fork is a
    // group of one, too.
    std::shared_ptr<point_to_point> old;
    if (mail_ && mail_->in_creating_process() && mail_->broken()) {
      old = std::exchange(mail_, nullptr);
    }
    if (!mail_ || !mail_->in_creating_process()) {
      auto roster_segment = rendezvous::shared_segment::anonymous(rendezvous::roster::bytes_for(1));
      rendezvous::roster::create_in(*roster_segment, 1);
      auto job = std::make_shared<local_job>();
      job->roster = std::make_shared<rendezvous::roster>(std::move(roster_segment), 1, 0);
      job->roster->enter();
      const auto sizes = layout::dimensions::for_ranks(1);
      auto memory = rendezvous::shared_segment::anonymous(sizes.total_bytes());
      layout::create_in(*memory, sizes);
      mail_ = std::make_shared<point_to_point>(
          std::make_shared<group_watch>(std::move(memory), std::move(job), std::vector<int>{0}, 0));
    }
    auto office = mail_;
    lock.unlock();  // what waits for the old one's transfers may come back here
    if (old) {
      old->stop();
    }
    return office;
  }

  std::shared_ptr<std::pmr::memory_resource> memory_ = std::make_shared<ordinary_memory>();
  std::mutex mail_mutex_;
  std::shared_ptr<point_to_point> mail_;    // once there is a message
  std::atomic<std::uint64_t> sequence_{0};  // atomic for a second thread that is refused and says so
};

}  // namespace hfcomm::engines
