// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
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

/// Averages gradients on the CPU, by jobs that a thread of its own performs in their order, or the thread that calls.
/// The derived classes say where the gradients of a bucket are, and reduce one.
///
/// After a failure the other jobs of the pass are dropped, on all ranks, because every failure is one of an operation,
/// or announced in the place of one.
class queued_reducer : public reducer {
 protected:
  /// With `ends_together`, every pass ends with an operation, in which a part that failed on one rank fails on all.
  queued_reducer(const process_group& group, std::span<ddp_parameter> parameters, const ddp_options& options,
                 bool ends_together)
      : reducer(group, parameters, options, true),
        has_thread_(!options.reduce_on_calling_thread),
        ends_together_(ends_together) {
    const bool has_narrow = std::any_of(parameters_.begin(), parameters_.end(),
                                        [](const ddp_parameter& one) { return size_of(one.type) == 2; });
    wide_.resize(has_narrow ? wide_sum_elements : 0);
  }

  /// Starts the thread, which first calls `begin()`. To be called by the constructors of derived classes, last. Throws
  /// engine_error where there is no thread for the reductions.
  template <class Begin>
  void start_thread(std::source_location where, const Begin& begin) {
    if (!has_thread_) {
      return;
    }
    group_access::engine(group_).set_yields_core(true);
    worker_.start(worker_.lock(), {group_.rank(), group_.size(), "distributed_data_parallel", 0, where},
                  "the gradients", [this, begin, own = thread_identity()] {
                    thread_identity() = own;  // a hook may ask which rank it is of, and ranks may be threads
                    begin();
                    perform_jobs();
                  });
  }
  /// Ends the thread. To be called by the destructors of derived classes, whose functions the thread uses.
  void stop_thread() noexcept {
    worker_.request_stop();
    group_access::engine(group_).cancel();  // the worker may wait for a rank that never comes
    worker_.stop();
  }

  enum class job_kind : std::uint8_t {
    exchange_order,  ///< Before the first bucket.
    reduce_bucket,
    combine_usage,
    end_pass,          ///< After the last bucket: what has failed on a rank fails on all.
    announce_failure,  ///< Tells the other ranks that this one does not finish its pass.
    leave_pass,        ///< The same, where the other ranks need not be told.
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

  /// Reduces a bucket, as a job.
  virtual void reduce(const job& next) = 0;

  void start_order(order_agreement& wanted, std::source_location where) override {
    push({.kind = job_kind::exchange_order, .pass = pass_number(), .where = where, .order = &wanted});
  }

  void start_bucket(std::size_t index, std::source_location where) override {
    push({.kind = job_kind::reduce_bucket, .pass = pass_number(), .where = where, .bucket = index});
  }

  void start_usage(std::vector<std::uint8_t>& used, std::source_location where) override {
    push({.kind = job_kind::combine_usage, .pass = pass_number(), .where = where, .used = &used});
    wait_for_jobs();
  }

  /// Ends the jobs of a pass that has no failure.
  void end_pass(std::source_location where) {
    if (ends_together_) {
      push({.kind = job_kind::end_pass, .pass = pass_number(), .where = where});
    }
    wait_for_jobs();
  }

  void announce_failure(bool is_incomplete, const std::string& why, std::source_location where) override {
    push({.kind = is_incomplete ? job_kind::announce_failure : job_kind::leave_pass,
          .pass = pass_number(),
          .where = where,
          .why = why});
  }

  void wait_for_started() override {
    auto held = worker_.lock();
    worker_.wait(held, [this] { return jobs_.empty() && !is_working_; });
  }

  /// Waits for the jobs. Throws the failure of the pass, if there is one.
  void wait_for_jobs() {
    group_access::engine(group_).set_caller(engines::caller_state::waits);
    queued_reducer::wait_for_started();
    group_access::engine(group_).set_caller(engines::caller_state::rests);
    if (failure_ != nullptr) {
      std::rethrow_exception(std::exchange(failure_, nullptr));
    }
  }

  /// Averages elements of a bucket, in place. Collective.
  void average(const job& next, std::span<std::byte> data) {
    const bucket& from = buckets_[next.bucket];
    operation call = average_call({from.type, from.kernel, next.pass}, data.size(), next.where);
    running_call running(group_, call);
    mean_of_sum(running.engine(), call, data, wide_, divisor_);
  }

  /// Tells the other ranks, in an operation's place, that this one does not finish its pass.
  void tell_others(const std::string& why, std::source_location where) {
    operation call = failed_pass_call(where);
    running_call(group_, call).announce_failure(why);
  }

 private:
  [[gnu::noinline]] void push(job next) {
    group_access::engine(group_).set_caller(engines::caller_state::works);
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

  /// Performs the jobs in their order, on the worker's thread.
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
    const bool ends_pass = last.kind == job_kind::announce_failure || last.kind == job_kind::leave_pass;
    failure_ = ends_pass ? nullptr : std::move(problem);  // this rank has thrown its own error for such a pass
  }

  void perform(const job& next) {
    switch (next.kind) {
      case job_kind::exchange_order:
        exchange_order(group_, *next.order, parameters_.size(), next.pass, next.where);
        break;
      case job_kind::reduce_bucket: reduce(next); break;
      case job_kind::combine_usage: combine_usage(group_, *next.used, next.pass, next.where); break;
      case job_kind::end_pass: end_together(next); break;
      case job_kind::announce_failure: tell_others(next.why, next.where); break;
      case job_kind::leave_pass:
        if (ends_together_) {
          end_together(next);  // the other ranks are there, too
        }
        break;
    }
  }

  void end_together(const job& next) {
    operation call = end_of_pass_call(next.pass, next.where);
    running_call running(group_, call);
    running.exchange_nothing();
  }

  bool has_thread_;
  bool ends_together_;
  std::vector<float> wide_;  // for sums of 16-bit elements

  std::deque<job> jobs_;
  bool is_working_ = false;
  std::exception_ptr failure_;
  worker worker_;  // protects the three above; its thread ends before they do
};

}  // namespace hfcomm::detail
