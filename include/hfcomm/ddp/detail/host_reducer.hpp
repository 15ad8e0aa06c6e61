// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/ddp/detail/mean_of_sum.hpp>
#include <hfcomm/ddp/detail/reducer.hpp>
#include <hfcomm/group/detail/group_state.hpp>
#include <hfcomm/machine/worker.hpp>

namespace hfcomm::detail {

/// Averages gradients in host memory, on a thread of its own.
class host_reducer final : public reducer {
 public:
  /// Throws engine_error where there is no thread for the reductions.
  host_reducer(const process_group& group, std::span<const ddp_parameter> parameters, const reducer_options& options,
               std::source_location where)
      : reducer(group, parameters, options) {
    staging_ = group_.allocate<std::byte>(staging_bytes([](const bucket&) { return true; }));
    const bool has_narrow = std::any_of(parameters_.begin(), parameters_.end(),
                                        [](const ddp_parameter& one) { return size_of(one.type) == 2; });
    wide_.resize(has_narrow ? wide_elements : 0);
    group_access::engine(group_).set_yields_core(true);
    worker_.start(worker_.lock(), {group_.rank(), group_.size(), "distributed_data_parallel", 0, where},
                  "the gradients", [this] { perform_jobs(); });
  }

  ~host_reducer() override {
    worker_.request_stop();
    group_access::engine(group_).cancel();  // the worker may wait for a rank that never comes
    worker_.stop();
  }

 private:
  enum class job_kind : std::uint8_t {
    reduce_bucket,
    combine_usage,     ///< After the last bucket, where parameters may be unused.
    announce_failure,  ///< Tells the other ranks that this one does not finish its pass.
    end_pass,          ///< The same, where the other ranks need not be told.
  };

  struct job {
    job_kind kind;
    std::uint64_t pass;
    std::source_location where;
    std::size_t bucket = 0;                     // of reduce_bucket
    std::vector<std::uint8_t>* used = nullptr;  // of combine_usage
    std::string why = {};                       // of announce_failure
  };

  void start_bucket(std::size_t index, std::source_location where) override {
    push({.kind = job_kind::reduce_bucket, .pass = pass_number(), .where = where, .bucket = index});
  }

  void finish_buckets(std::vector<std::uint8_t>& used, std::source_location where) override {
    if (find_unused_) {
      push({.kind = job_kind::combine_usage, .pass = pass_number(), .where = where, .used = &used});
    }
    wait_for_started();
    if (failure_ != nullptr) {
      std::rethrow_exception(std::exchange(failure_, nullptr));
    }
    if (find_unused_) {
      for (std::size_t index = 0; index < buckets_.size(); ++index) {
        unpack(buckets_[index], staging_of(index),
               [&](const bucket::place& place) { return used[place.parameter] != 0; });
      }
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
      if (failure_ == nullptr) {
        held.unlock();
        std::exception_ptr problem;
        try {
          perform(next);
        } catch (...) {
          problem = std::current_exception();
        }
        held.lock();
        failure_ = problem;
      }
      if (next.kind == job_kind::announce_failure || next.kind == job_kind::end_pass) {
        failure_ = nullptr;  // this rank has thrown its own error for this pass
      }
      is_working_ = false;
      if (jobs_.empty()) {
        worker_.wake();
      }
    }
  }

  void perform(const job& next) {
    switch (next.kind) {
      case job_kind::reduce_bucket: reduce(next); break;
      case job_kind::combine_usage: combine_usage(*next.used, next.pass, next.where); break;
      case job_kind::announce_failure: {
        operation call = failed_pass_call(next.where);
        running_call(group_, call).announce_failure(next.why);
        break;
      }
      case job_kind::end_pass: break;
    }
  }

  void reduce(const job& next) {
    const bucket& target = buckets_[next.bucket];
    // A gradient that is alone in its bucket is reduced in place.
    const bool in_place = target.places.size() == 1 && !find_unused_;
    const std::span<std::byte> data =
        in_place ? parameters_[target.places.front().parameter].gradient : staging_of(next.bucket);
    if (adds_nothing_) {
      fill_with_negative_zeros(target.type, data);
    } else if (!in_place) {
      pack(target, data);
    }
    {
      operation call = bucket_call(target, next.pass, next.where);
      running_call running(group_, call);
      mean_of_sum(running.engine(), call, data, wide_, divisor_);
    }
    if (!in_place && !find_unused_) {
      unpack(target, data, [](const bucket::place&) { return true; });
    }
  }

  /// Copies the gradients of a bucket into `data`; zeros for those that this rank did not use.
  void pack(const bucket& target, std::span<std::byte> data) const {
    for (const auto& place : target.places) {
      const auto gradient = parameters_[place.parameter].gradient;
      if (gradient.empty()) {
        continue;
      }
      if (is_used(place)) {
        std::memcpy(data.data() + place.offset, gradient.data(), gradient.size());
      } else {
        std::memset(data.data() + place.offset, 0, gradient.size());
      }
    }
  }

  /// Copies the averages for which `wanted(place)` holds into the gradients. The others stay as they are.
  template <class Predicate>
  void unpack(const bucket& target, std::span<const std::byte> data, Predicate wanted) const {
    for (const auto& place : target.places) {
      const auto gradient = parameters_[place.parameter].gradient;
      if (wanted(place) && !gradient.empty()) {
        std::memcpy(gradient.data(), data.data() + place.offset, gradient.size());
      }
    }
  }

  std::span<std::byte> staging_of(std::size_t index) {
    return std::span(staging_).subspan(staging_offset(index), buckets_[index].bytes);
  }

  shared_buffer<std::byte> staging_;  // the group's shared memory, which is reduced in place
  static constexpr std::size_t wide_elements = std::size_t{1} << 16;
  std::vector<float> wide_;  // for sums of 16-bit elements

  std::deque<job> jobs_;
  bool is_working_ = false;
  std::exception_ptr failure_;
  worker worker_;  // protects the three above; its thread ends before they do
};

}  // namespace hfcomm::detail
