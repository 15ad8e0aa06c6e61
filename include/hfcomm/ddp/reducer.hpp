// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <source_location>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <hfcomm/collectives/call.hpp>
#include <hfcomm/ddp/bucket.hpp>
#include <hfcomm/ddp/mean_of_sum.hpp>

namespace hfcomm::detail {

/// Averages gradients bucket by bucket on a thread of its own, in a group of its own, while the caller goes on
/// computing.
///
/// Buckets are started strictly in their order on every rank, whatever order the gradients become ready in: that is
/// what keeps the ranks paired. The caller must not touch a gradient between `ready` and `finish`.
class reducer {
 public:
  reducer(const process_group& group, std::span<const ddp_parameter> parameters, std::size_t first_bytes,
          std::size_t bytes, bool find_unused)
      : group_(group),
        parameters_(parameters),
        buckets_(plan_buckets(parameters, first_bytes, bytes)),
        find_unused_(find_unused),
        bucket_of_(parameters.size()),
        ready_(parameters.size()),
        pending_(buckets_.size()) {
    std::size_t largest = 0;
    for (std::size_t index = 0; index < buckets_.size(); ++index) {
      for (const auto& place : buckets_[index].places) {
        bucket_of_[place.parameter] = index;
      }
      largest = std::max(largest, buckets_[index].bytes);
      total_ += buckets_[index].bytes;
    }
    // With unused parameters nothing may be written back before all ranks' usage is known.
    staging_ = group_.allocate<std::byte>(find_unused_ ? total_ : largest);
    const bool narrow = std::any_of(parameters_.begin(), parameters_.end(),
                                    [](const ddp_parameter& one) { return size_of(one.type) == 2; });
    wide_.resize(narrow ? wide_elements : 0);
    group_access::engine(group_).set_polite(true);
    next_pass();
    worker_ = std::thread([this] { work(); });
  }
  reducer(const reducer&) = delete;
  reducer& operator=(const reducer&) = delete;

  ~reducer() {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    group_access::engine(group_).cancel();  // the worker may be waiting for a rank that never comes
    worker_.join();
  }

  /// False in the child of a fork, where the worker does not exist and nothing else may be called.
  [[nodiscard]] bool at_home() const noexcept { return home_.at_home(); }
  [[nodiscard]] bool is_ready(std::size_t parameter) const { return ready_[parameter]; }
  [[nodiscard]] std::size_t bucket_count() const noexcept { return buckets_.size(); }
  /// The number of the backward pass that is next or under way, from 1.
  [[nodiscard]] std::uint64_t pass() const noexcept { return pass_; }

  /// Waits for what `abandon` left behind. To be called before anything else of a new pass.
  void settle() {
    if (abandoned_) {
      wait_idle();
      abandoned_ = false;
      next_pass();
    }
  }

  /// For this pass, the sums are divided by `ranks` instead of the group's size. The same on all ranks.
  void divide_by(int ranks) noexcept { divisor_ = ranks; }

  /// Goes through a whole pass without a backward of one's own. It adds to the others' gradients those that are
  /// `left_over`, all of them, or nothing. This rank's are overwritten with the same averages that the others get.
  void shadow(bool left_over, std::source_location where) {
    shadowing_ = !left_over;
    ready_.assign(parameters_.size(), static_cast<char>(left_over));
    pending_.assign(buckets_.size(), 0);
    start_complete_buckets(where);
    finish(where);
  }

  /// The gradient of `parameter` is final.
  void ready(std::size_t parameter, std::source_location where) {
    ready_[parameter] = true;
    --pending_[bucket_of_[parameter]];
    start_complete_buckets(where);
  }

  /// Waits until every gradient holds the average over the ranks. Throws what the worker met.
  void finish(std::source_location where) {
    std::vector<std::uint8_t> used(find_unused_ ? parameters_.size() : 0);
    if (find_unused_) {
      for (std::size_t index = 0; index < parameters_.size(); ++index) {
        used[index] = ready_[index] ? 1 : 0;
      }
      pending_.assign(buckets_.size(), 0);
      start_complete_buckets(where);
      push({.bucket = buckets_.size(), .pass = pass_, .where = where, .usage = &used});
    }
    wait_idle();
    const bool failed = failure_ != nullptr;
    if (!failed && find_unused_) {
      write_back(used);
    }
    next_pass();
    if (failed) {
      std::rethrow_exception(std::exchange(failure_, nullptr));
    }
  }

  /// Lets the started buckets end, then tells the other ranks that this one cannot go on with its iteration.
  void give_up(const std::string& why, std::source_location where) {
    abandon(why, where);
    settle();
  }

  /// The same without waiting; the gradients may be touched again after `settle`. Where everything was started, the
  /// others need not be told.
  void abandon(const std::string& why, std::source_location where) {
    const bool incomplete = next_ < buckets_.size() || find_unused_;
    push({.bucket = buckets_.size(), .pass = pass_, .where = where, .ends = true, .announces = incomplete, .why = why});
    abandoned_ = true;
  }

  /// Counts a backward pass whose gradients are not reduced: the ranks must agree on which ones are.
  void skip_pass() noexcept { ++pass_; }

 private:
  struct job {
    std::size_t bucket;
    std::uint64_t pass;
    std::source_location where;
    std::vector<std::uint8_t>* usage = nullptr;  // of the last job where parameters may be unused
    bool ends = false;                           // the last job of a pass that this rank does not finish
    bool announces = false;                      // the others are to be told
    std::string why = {};
  };

  void next_pass() {
    ++pass_;
    next_ = 0;
    shadowing_ = false;
    divisor_ = group_.size();
    ready_.assign(parameters_.size(), false);
    for (std::size_t index = 0; index < buckets_.size(); ++index) {
      pending_[index] = buckets_[index].places.size();
    }
  }

  void start_complete_buckets(std::source_location where) {
    for (; next_ < buckets_.size() && pending_[next_] == 0; ++next_) {
      push({.bucket = next_, .pass = pass_, .where = where});
    }
  }

  void push(job next) {
    {
      const std::scoped_lock lock(mutex_);
      jobs_.push_back(std::move(next));
    }
    wake_.notify_one();
  }

  void wait_idle() {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return jobs_.empty() && !working_; });
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (stopping_) {
        return;
      }
      const job next = std::move(jobs_.front());
      jobs_.pop_front();
      working_ = true;
      if (failure_ == nullptr) {
        lock.unlock();
        std::exception_ptr problem;
        try {
          next.ends ? refuse(next) : perform(next);
        } catch (...) {
          problem = std::current_exception();
        }
        lock.lock();
        failure_ = problem;
      }
      if (next.ends) {
        failure_ = nullptr;  // this rank has said, or thrown, why; nobody will ask
      }
      working_ = false;
      if (jobs_.empty()) {
        idle_.notify_all();
      }
    }
  }

  void refuse(const job& next) {
    if (next.announces) {
      operation call =
          reduction_call<float>("distributed_data_parallel", movement::to_all, 0, -1, reduce_op::average, next.where);
      running_call(group_, call).reject(next.why);
    }
  }

  void perform(const job& next) {
    if (next.usage != nullptr) {
      operation call = reduction_call<std::uint8_t>("distributed_data_parallel", movement::to_all, next.usage->size(),
                                                    -1, reduce_op::max, next.where);
      call.tag = next.pass;
      running_call running(group_, call);
      const auto bytes = std::as_writable_bytes(std::span(*next.usage));
      running.engine().reduce(call, bytes, bytes);
      return;
    }
    const bucket& target = buckets_[next.bucket];
    // A gradient that is alone in its bucket is reduced where it is.
    const bool direct = target.places.size() == 1 && !find_unused_;
    std::span<std::byte> data =
        direct ? parameters_[target.places.front().parameter].gradient : staging_of(next.bucket);
    if (shadowing_) {
      fill_with_nothing(target.type, data);
    } else if (!direct) {
      for (const auto& place : target.places) {
        const auto gradient = parameters_[place.parameter].gradient;
        if (gradient.empty()) {
          continue;
        }
        if (ready_[place.parameter]) {
          std::memcpy(data.data() + place.offset, gradient.data(), gradient.size());
        } else {
          std::memset(data.data() + place.offset, 0, gradient.size());
        }
      }
    }
    {
      operation call{.name = "distributed_data_parallel",
                     .pattern = movement::to_all,
                     .content = payload::buffer,
                     .element = target.type,
                     .reduces = true,
                     .op = reduce_op::average,
                     .bytes = target.bytes,
                     .tag = next.pass,
                     .where = next.where};
      running_call running(group_, call);
      mean_of_sum(running.engine(), call, data, wide_, divisor_);
    }
    if (!direct && !find_unused_) {
      for (const auto& place : target.places) {
        const auto gradient = parameters_[place.parameter].gradient;
        if (!gradient.empty()) {
          std::memcpy(gradient.data(), data.data() + place.offset, gradient.size());
        }
      }
    }
  }

  std::span<std::byte> staging_of(std::size_t index) {
    std::size_t offset = 0;
    if (find_unused_) {
      for (std::size_t before = 0; before < index; ++before) {
        offset += buckets_[before].bytes;
      }
    }
    return std::span(staging_).subspan(offset, buckets_[index].bytes);
  }

  /// A gradient that no rank used stays as it is; one that some rank used becomes the average everywhere.
  void write_back(const std::vector<std::uint8_t>& used) {
    for (std::size_t index = 0; index < buckets_.size(); ++index) {
      const auto data = staging_of(index);
      for (const auto& place : buckets_[index].places) {
        const auto gradient = parameters_[place.parameter].gradient;
        if (used[place.parameter] != 0 && !gradient.empty()) {
          std::memcpy(gradient.data(), data.data() + place.offset, gradient.size());
        }
      }
    }
  }

  process_group group_;
  std::span<const ddp_parameter> parameters_;
  std::vector<bucket> buckets_;
  bool find_unused_;
  std::vector<std::size_t> bucket_of_;
  std::vector<char> ready_;
  std::vector<std::size_t> pending_;
  std::size_t next_ = 0;              // the next bucket to start
  std::size_t total_ = 0;             // bytes of all gradients
  shared_buffer<std::byte> staging_;  // of the group's shared memory: reduced in place
  static constexpr std::size_t wide_elements = std::size_t{1} << 16;
  std::vector<float> wide_;  // for sums of 16-bit elements
  bool shadowing_ = false;   // this rank adds nothing in this pass
  int divisor_ = 0;          // of this pass's sums
  bool abandoned_ = false;   // this pass ends without `finish`
  std::uint64_t pass_ = 0;   // of backward; ranks in different ones must not average with each other

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::deque<job> jobs_;
  bool working_ = false;
  bool stopping_ = false;
  std::exception_ptr failure_;
  rendezvous::fork_guard home_;
  std::thread worker_;
};

}  // namespace hfcomm::detail
