// SPDX-License-Identifier: MIT
#pragma once

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
    staging_.resize(find_unused_ ? total_ : largest);
    group_access::engine(group_).set_polite(true);
    next_pass();
    worker_ = std::thread([this] { work(); });
  }
  reducer(const reducer&) = delete;
  reducer& operator=(const reducer&) = delete;

  ~reducer() {
    if (!home_.at_home()) {
      worker_.detach();  // the child of a fork: its worker exists in the parent only
      return;
    }
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    group_access::engine(group_).cancel();  // the worker may be waiting for a rank that never comes
    worker_.join();
  }

  [[nodiscard]] bool is_ready(std::size_t parameter) const { return ready_[parameter]; }
  [[nodiscard]] std::size_t bucket_count() const noexcept { return buckets_.size(); }

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
      push({buckets_.size(), pass_, where, &used});
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
    wait_idle();
    next_pass();
    if (failure_ == nullptr) {
      operation call =
          reduction_call<float>("distributed_data_parallel", movement::to_all, 0, -1, reduce_op::average, where);
      running_call running(group_, call);
      running.reject(why);
    }
    failure_ = nullptr;
  }

  /// Counts a backward pass whose gradients are not reduced: the ranks must agree on which ones are.
  void skip_pass() noexcept { ++pass_; }

 private:
  struct job {
    std::size_t bucket;
    std::uint64_t pass;
    std::source_location where;
    std::vector<std::uint8_t>* usage = nullptr;  // of the last job where parameters may be unused
  };

  void next_pass() {
    ++pass_;
    next_ = 0;
    ready_.assign(parameters_.size(), false);
    for (std::size_t index = 0; index < buckets_.size(); ++index) {
      pending_[index] = buckets_[index].places.size();
    }
  }

  void start_complete_buckets(std::source_location where) {
    for (; next_ < buckets_.size() && pending_[next_] == 0; ++next_) {
      push({next_, pass_, where});
    }
  }

  void push(job next) {
    {
      const std::scoped_lock lock(mutex_);
      jobs_.push_back(next);
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
      const job next = jobs_.front();
      jobs_.pop_front();
      working_ = true;
      if (failure_ == nullptr) {
        lock.unlock();
        std::exception_ptr problem;
        try {
          perform(next);
        } catch (...) {
          problem = std::current_exception();
        }
        lock.lock();
        failure_ = problem;
      }
      working_ = false;
      if (jobs_.empty()) {
        idle_.notify_all();
      }
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
    if (!direct) {
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
      running.engine().reduce(call, data, data);
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
  std::size_t next_ = 0;   // the next bucket to start
  std::size_t total_ = 0;  // bytes of all gradients
  std::vector<std::byte> staging_;
  std::uint64_t pass_ = 0;  // of backward; ranks in different ones must not average with each other

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
