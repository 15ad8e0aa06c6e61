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

#include <hfcomm/ddp/detail/mean_of_sum.hpp>
#include <hfcomm/ddp/detail/reducer.hpp>

namespace hfcomm::detail {

/// Averages gradients in host memory, on a thread of its own.
class host_reducer final : public reducer {
 public:
  host_reducer(const process_group& group, std::span<const ddp_parameter> parameters, std::size_t first_bytes,
               std::size_t bytes, bool find_unused)
      : reducer(group, parameters, first_bytes, bytes, find_unused) {
    staging_ = group_.allocate<std::byte>(staging_bytes([](const bucket&) { return true; }));
    const bool narrow = std::any_of(parameters_.begin(), parameters_.end(),
                                    [](const ddp_parameter& one) { return size_of(one.type) == 2; });
    wide_.resize(narrow ? wide_elements : 0);
    group_access::engine(group_).set_polite(true);
    worker_ = std::thread([this] { work(); });
  }

  ~host_reducer() override {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    group_access::engine(group_).cancel();  // the worker may be waiting for a rank that never comes
    worker_.join();
  }

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

  void start(std::size_t index, std::source_location where) override {
    push({.bucket = index, .pass = pass(), .where = where});
  }

  void end(std::vector<std::uint8_t>& used, std::source_location where) override {
    if (find_unused_) {
      push({.bucket = buckets_.size(), .pass = pass(), .where = where, .usage = &used});
    }
    drain();
    if (failure_ != nullptr) {
      std::rethrow_exception(std::exchange(failure_, nullptr));
    }
    if (find_unused_) {
      write_back(used);
    }
  }

  void leave(std::source_location /*where*/) noexcept override {}

  void refuse(bool incomplete, const std::string& why, std::source_location where) override {
    push(
        {.bucket = buckets_.size(), .pass = pass(), .where = where, .ends = true, .announces = incomplete, .why = why});
  }

  void drain() override {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return jobs_.empty() && !working_; });
  }

  void push(job next) {
    {
      const std::scoped_lock lock(mutex_);
      jobs_.push_back(std::move(next));
    }
    wake_.notify_one();
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
          next.ends ? announce(next) : perform(next);
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

  void announce(const job& next) {
    if (next.announces) {
      operation call = refusal_call(next.where);
      running_call(group_, call).reject(next.why);
    }
  }

  void perform(const job& next) {
    if (next.usage != nullptr) {
      unite_usage(*next.usage, next.pass, next.where);
      return;
    }
    const bucket& target = buckets_[next.bucket];
    // A gradient that is alone in its bucket is reduced where it is.
    const bool direct = target.places.size() == 1 && !find_unused_;
    const std::span<std::byte> data =
        direct ? parameters_[target.places.front().parameter].gradient : staging_of(next.bucket);
    if (shadowing_) {
      fill_with_nothing(target.type, data);
    } else if (!direct) {
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
    {
      operation call = bucket_call(target, next.pass, next.where);
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
    return std::span(staging_).subspan(staging_offset(index), buckets_[index].bytes);
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

  shared_buffer<std::byte> staging_;  // of the group's shared memory: reduced in place
  static constexpr std::size_t wide_elements = std::size_t{1} << 16;
  std::vector<float> wide_;  // for sums of 16-bit elements

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::deque<job> jobs_;
  bool working_ = false;
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::thread worker_;
};

}  // namespace hfcomm::detail
