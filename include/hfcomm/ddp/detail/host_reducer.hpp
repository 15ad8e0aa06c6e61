// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/ddp/detail/average_call.hpp>
#include <hfcomm/ddp/detail/mean_of_sum.hpp>
#include <hfcomm/ddp/detail/reducer.hpp>
#include <hfcomm/group/detail/group_state.hpp>
#include <hfcomm/group/detail/identity.hpp>
#include <hfcomm/machine/worker.hpp>

namespace hfcomm::detail {

/// Averages gradients in host memory, on a thread of its own, or on the one that calls.
class host_reducer final : public reducer {
 public:
  /// Throws engine_error where there is no thread for the reductions.
  host_reducer(const process_group& group, std::span<ddp_parameter> parameters, const ddp_options& options,
               std::source_location where)
      : reducer(group, parameters, options, true), has_thread_(!options.reduce_on_calling_thread) {
    make_buckets();
    const bool has_narrow = std::any_of(parameters_.begin(), parameters_.end(),
                                        [](const ddp_parameter& one) { return size_of(one.type) == 2; });
    wide_.resize(has_narrow ? wide_sum_elements : 0);
    if (!has_thread_) {
      return;
    }
    group_access::engine(group_).set_yields_core(true);
    worker_.start(worker_.lock(), {group_.rank(), group_.size(), "distributed_data_parallel", 0, where},
                  "the gradients", [this, own = thread_identity()] {
                    thread_identity() = own;  // a hook may ask which rank it is of, and ranks may be threads
                    perform_jobs();
                  });
  }

  ~host_reducer() override {
    worker_.request_stop();
    group_access::engine(group_).cancel();  // the worker may wait for a rank that never comes
    worker_.stop();
  }

 private:
  enum class job_kind : std::uint8_t {
    exchange_order,  ///< Before the first bucket.
    reduce_bucket,
    combine_usage,
    end_hooks,         ///< After the last bucket: where a hook has failed on a rank, the pass fails on all.
    announce_failure,  ///< Tells the other ranks that this one does not finish its pass.
    end_pass,          ///< The same, where the other ranks need not be told.
  };

  struct job {
    job_kind kind;
    std::uint64_t pass;
    std::source_location where;
    std::size_t bucket = 0;                     // of reduce_bucket
    std::vector<std::uint8_t>* used = nullptr;  // of combine_usage
    order_agreement* order = nullptr;           // of exchange_order
    std::string why = {};                       // of announce_failure
  };

  std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
    const auto memory = std::make_shared<shared_buffer<std::byte>>(group_.allocate<std::byte>(bytes));
    return {memory, memory->data()};
  }

  void prepare_staging() override {
    staging_ = group_.allocate<std::byte>(
        staging_bytes([](const bucket& one) { return one.memory == nullptr && one.places.size() > 1; }));
  }

  void copy_gradient(std::span<const std::byte> from, std::span<std::byte> to,
                     std::source_location /*where*/) override {
    std::memcpy(to.data(), from.data(), from.size());
  }

  void start_order(order_agreement& wanted, std::source_location where) override {
    push({.kind = job_kind::exchange_order, .pass = pass_number(), .where = where, .order = &wanted});
  }

  void start_bucket(std::size_t index, std::source_location where) override {
    push({.kind = job_kind::reduce_bucket, .pass = pass_number(), .where = where, .bucket = index});
  }

  void start_usage(std::vector<std::uint8_t>& used, std::source_location where) override {
    push({.kind = job_kind::combine_usage, .pass = pass_number(), .where = where, .used = &used});
    wait_for_started();
    throw_failure();
  }

  void finish_buckets(std::source_location where) override {
    if (has_hook()) {
      push({.kind = job_kind::end_hooks, .pass = pass_number(), .where = where});
    }
    wait_for_started();
    throw_failure();
    for (std::size_t index = 0; find_unused_ && index < buckets_.size(); ++index) {
      unpack(buckets_[index], data_of(index));
    }
  }

  /// Throws the failure of the pass, if there is one.
  void throw_failure() {
    if (failure_ != nullptr) {
      std::rethrow_exception(std::exchange(failure_, nullptr));
    }
  }

  void clean_up(std::source_location /*where*/) noexcept override {}

  void announce_failure(bool is_incomplete, const std::string& why, std::source_location where) override {
    push({.kind = is_incomplete ? job_kind::announce_failure : job_kind::end_pass,
          .pass = pass_number(),
          .where = where,
          .why = why});
  }

  void wait_for_started() override {
    auto held = worker_.lock();
    worker_.wait(held, [this] { return jobs_.empty() && !is_working_; });
  }

  void push(job next) {
    if (!has_thread_) {
      keep_failure(next, perform_unless_failed(next));
      return;
    }
    {
      const auto held = worker_.lock();
      jobs_.push_back(std::move(next));
    }
    worker_.wake();
  }

  /// Performs the jobs in their order, on the worker's thread. After a failure the other jobs of the pass are dropped.
  void perform_jobs() {
    auto held = worker_.lock();
    while (worker_.wait_for_work(held, [this] { return !jobs_.empty(); })) {
      const job next = std::move(jobs_.front());
      jobs_.pop_front();
      is_working_ = true;
      held.unlock();
      auto problem = perform_unless_failed(next);
      held.lock();
      keep_failure(next, std::move(problem));
      is_working_ = false;
      if (jobs_.empty()) {
        worker_.wake();
      }
    }
  }

  /// Returns the failure of the pass, if there is one. Only this thread changes it while jobs are under way.
  std::exception_ptr perform_unless_failed(const job& next) {
    if (failure_ == nullptr) {
      try {
        perform(next);
      } catch (...) {
        return std::current_exception();
      }
    }
    return failure_;
  }

  void keep_failure(const job& last, std::exception_ptr problem) {
    const bool ends_pass = last.kind == job_kind::announce_failure || last.kind == job_kind::end_pass;
    failure_ = ends_pass ? nullptr : std::move(problem);  // this rank has thrown its own error for such a pass
  }

  void perform(const job& next) {
    switch (next.kind) {
      case job_kind::exchange_order: exchange_order(*next.order, next.pass, next.where); break;
      case job_kind::reduce_bucket: reduce(next); break;
      case job_kind::combine_usage: combine_usage(*next.used, next.pass, next.where); break;
      case job_kind::end_hooks: end_hooks(next); break;
      case job_kind::announce_failure: tell_others(next.why, next.where); break;
      case job_kind::end_pass:
        if (has_hook()) {
          end_hooks(next);  // the other ranks are there, too
        }
        break;
    }
  }

  /// Tells the other ranks, in an operation's place, that this one does not finish its pass.
  void tell_others(const std::string& why, std::source_location where) {
    operation call = failed_pass_call(where);
    running_call(group_, call).announce_failure(why);
  }

  void end_hooks(const job& next) {
    operation call = end_of_pass_call(next.pass, next.where);
    running_call running(group_, call);
    no_receiver nothing;
    running.engine().exchange(call, {}, nothing);
  }

  void reduce(const job& next) {
    const bucket& target = buckets_[next.bucket];
    const auto began = std::chrono::steady_clock::now();
    const std::span<std::byte> data = data_of(next.bucket);
    std::size_t copied = 0;
    if (adds_nothing_) {
      fill_with_negative_zeros(target.type, data);
    } else {
      copied = pack(target, data);
    }
    if (has_hook()) {
      run_hook(describe(next.bucket, data, next.pass, next.where),
               [&](const std::string& why) { tell_others(why, next.where); });
    } else {
      operation call = average_call({target.type, target.kernel, next.pass}, target.bytes, next.where);
      running_call running(group_, call);
      mean_of_sum(running.engine(), call, data, wide_, divisor_);
    }
    if (!find_unused_) {
      unpack(target, data);
    }
    record_bucket(target.bytes, copied);
    record_reduction(std::chrono::steady_clock::now() - began);
  }

  /// Copies the gradients of a bucket into `data`, unless they lie there; zeros for those that this rank did not use.
  /// Returns how many bytes it copied.
  [[nodiscard]] std::size_t pack(const bucket& target, std::span<std::byte> data) const {
    std::size_t copied = 0;
    for (const auto& place : target.places) {
      const auto gradient = parameters_[place.parameter].gradient;
      std::byte* const to = data.data() + place.offset;
      if (gradient.empty()) {
        continue;
      }
      if (!is_used(place)) {
        std::memset(to, 0, gradient.size());
      } else if (gradient.data() != to) {
        std::memcpy(to, gradient.data(), gradient.size());
        copied += gradient.size();
      }
    }
    return copied;
  }

  /// Copies the averages that any rank used into the gradients. The others stay as they are.
  void unpack(const bucket& target, std::span<const std::byte> data) const {
    for (const auto& place : target.places) {
      const auto gradient = parameters_[place.parameter].gradient;
      const std::byte* const from = data.data() + place.offset;
      if (was_used(place.parameter) && !gradient.empty() && gradient.data() != from) {
        std::memcpy(gradient.data(), from, gradient.size());
      }
    }
  }

  /// Returns the memory in which a bucket is reduced: that of its gradients if they are together, or staging.
  std::span<std::byte> data_of(std::size_t index) {
    const bucket& target = buckets_[index];
    if (!find_unused_ && target.memory != nullptr) {
      return {target.memory.get(), target.bytes};
    }
    if (!find_unused_ && target.places.size() == 1) {
      return parameters_[target.places.front().parameter].gradient;
    }
    return std::span(staging_).subspan(staging_offset(index), target.bytes);
  }

  bool has_thread_;
  shared_buffer<std::byte> staging_;  // the group's shared memory, which is reduced in place
  std::vector<float> wide_;           // for sums of 16-bit elements

  std::deque<job> jobs_;
  bool is_working_ = false;
  std::exception_ptr failure_;
  worker worker_;  // protects the three above; its thread ends before they do
};

}  // namespace hfcomm::detail
