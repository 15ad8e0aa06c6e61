// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/ddp/detail/bucket.hpp>
#include <hfcomm/ddp/parameter.hpp>
#include <hfcomm/machine/fork_guard.hpp>

namespace hfcomm::detail {

struct reducer_options {
  std::size_t first_bucket_bytes;
  std::size_t bucket_bytes;
  bool find_unused_parameters;
};

/// Averages gradients bucket by bucket, in a group of its own, while the caller continues to compute. This base counts
/// which gradients are ready; host_reducer and device_reducer average a bucket.
///
/// Every rank starts the buckets strictly in their order, whatever order the gradients become ready in, so that the
/// ranks' reductions match. The caller must not touch a gradient between `mark_ready` and `finish`.
class reducer {
 public:
  /// The parameters must outlive the reducer.
  reducer(const process_group& group, std::span<const ddp_parameter> parameters, const reducer_options& options)
      : group_(group),
        parameters_(parameters),
        buckets_(plan_buckets(parameters, options.first_bucket_bytes, options.bucket_bytes)),
        find_unused_(options.find_unused_parameters),
        bucket_of_(parameters.size()),
        ready_(parameters.size()),
        pending_(buckets_.size()) {
    for (std::size_t index = 0; index < buckets_.size(); ++index) {
      for (const auto& place : buckets_[index].places) {
        bucket_of_[place.parameter] = index;
      }
    }
    begin_next_pass();
  }
  reducer(const reducer&) = delete;
  reducer& operator=(const reducer&) = delete;
  virtual ~reducer() = default;

  /// Returns false in the child of a fork, where no other function may be called, not even the destructor.
  [[nodiscard]] bool in_creating_process() const noexcept { return creator_.in_creating_process(); }
  [[nodiscard]] bool is_ready(std::size_t parameter) const { return ready_[parameter] != 0; }
  [[nodiscard]] std::size_t bucket_count() const noexcept { return buckets_.size(); }
  /// Returns the number of the current or next backward pass, from 1.
  [[nodiscard]] std::uint64_t pass_number() const noexcept { return pass_; }

  /// Waits for the reductions of a pass that `abandon` ended. To be called before every other function of a new pass.
  void end_abandoned_pass() {
    if (abandoned_) {
      wait_for_started();
      abandoned_ = false;
      begin_next_pass();
    }
  }

  /// Divides the sums of this pass by `ranks` instead of the group's size. The same on all ranks.
  void divide_by(int ranks) noexcept { divisor_ = ranks; }

  /// Takes part in a whole pass without a backward of this rank. With `adds_gradients` it adds all of this rank's
  /// gradients, otherwise nothing. They are overwritten with the averages that the other ranks get.
  void shadow(bool adds_gradients, std::source_location where) {
    adds_nothing_ = !adds_gradients;
    ready_.assign(parameters_.size(), static_cast<std::uint8_t>(adds_gradients));
    finish(where, true);
  }

  /// Declares the gradient of `parameter` final.
  void mark_ready(std::size_t parameter, std::source_location where) {
    ready_[parameter] = 1;
    --pending_[bucket_of_[parameter]];
    start_complete_buckets(where);
  }

  /// Ends the pass, after which every gradient is the average over the ranks. Throws the errors of the reductions.
  void finish(std::source_location where) { finish(where, find_unused_); }

  /// Tells the other ranks that this one does not finish its pass, unless all buckets were started. Does not wait: the
  /// gradients may be touched again after `end_abandoned_pass`.
  void abandon(const std::string& why, std::source_location where) {
    const bool is_incomplete = next_ < buckets_.size() || find_unused_;
    announce_failure(is_incomplete, why, where);
    abandoned_ = true;
  }

  /// Counts a backward pass whose gradients are not reduced. The numbers of reduced passes must match on all ranks.
  void skip_pass() noexcept { ++pass_; }

 protected:
  // NOLINTBEGIN(*non-private-member*): shared with the derived classes
  process_group group_;
  std::span<const ddp_parameter> parameters_;
  std::vector<bucket> buckets_;
  bool find_unused_;
  bool adds_nothing_ = false;  // this rank's part of the sums is zero in this pass
  int divisor_ = 0;            // of this pass's sums
  // NOLINTEND(*non-private-member*)

  /// Starts to reduce a bucket, after those that were started before.
  virtual void start_bucket(std::size_t index, std::source_location where) = 0;
  /// Ends the reductions of a pass, after the last bucket was started. With `find_unused_` it reduces `used`, which
  /// tells for each parameter whether this rank used it.
  virtual void finish_buckets(std::vector<std::uint8_t>& used, std::source_location where) = 0;
  /// Cleans up after an error that ends the pass. The error is thrown afterwards.
  virtual void clean_up(std::source_location where) noexcept = 0;
  /// Ends a pass that this rank does not finish. Tells the other ranks `why` if the pass `is_incomplete`. Does not
  /// throw where they cannot be told.
  virtual void announce_failure(bool is_incomplete, const std::string& why, std::source_location where) = 0;
  /// Waits for the reductions that were started, where the host has to.
  virtual void wait_for_started() = 0;

  [[nodiscard]] bool is_used(const bucket::place& place) const { return ready_[place.parameter] != 0; }

  /// Returns the bytes of memory in which gradients are packed. With `find_unused_` it holds all buckets, because no
  /// gradient is written before the usage on all ranks is known. Otherwise it holds the largest bucket for which
  /// `needs_staging(bucket)` is true.
  template <class Predicate>
  [[nodiscard]] std::size_t staging_bytes(Predicate needs_staging) const {
    std::size_t total = 0;
    std::size_t largest = 0;
    for (const auto& one : buckets_) {
      total += aligned(one.bytes);
      largest = needs_staging(one) ? std::max(largest, one.bytes) : largest;
    }
    return find_unused_ ? total : largest;
  }
  /// Returns the offset of a bucket in that memory.
  [[nodiscard]] std::size_t staging_offset(std::size_t index) const {
    std::size_t offset = 0;
    for (std::size_t before = 0; find_unused_ && before < index; ++before) {
      offset += aligned(buckets_[before].bytes);
    }
    return offset;
  }

  /// Returns the reduction of a bucket.
  [[nodiscard]] operation bucket_call(const bucket& target, std::uint64_t pass, std::source_location where) const {
    return {.name = "distributed_data_parallel",
            .pattern = movement::to_all,
            .content = payload::buffer,
            .element = target.type,
            .reduces = true,
            .op = reduce_op::average,
            .kernel = target.kernel,
            .bytes = target.bytes,
            .tag = pass,
            .where = where};
  }

  /// Returns the operation in whose place this rank announces that its pass failed.
  [[nodiscard]] operation failed_pass_call(std::source_location where) const {
    return reduction_call_without_kernel<float>("distributed_data_parallel", movement::to_all, 0, -1,
                                                reduce_op::average, where);
  }

  /// Makes `used` tell for each parameter whether any rank used it. Collective over the host plane.
  void combine_usage(std::vector<std::uint8_t>& used, std::uint64_t pass, std::source_location where) const {
    operation call = reduction_call<std::uint8_t>("distributed_data_parallel", movement::to_all, used.size(), -1,
                                                  reduce_op::max, where);
    call.tag = pass;
    running_call running(group_, call);
    const auto bytes = std::as_writable_bytes(std::span(used));
    running.engine().reduce(call, bytes, bytes);
  }

 private:
  /// Rounds up to an offset at which buckets of every type may begin.
  static constexpr std::size_t aligned(std::size_t bytes) noexcept { return (bytes + 255) / 256 * 256; }

  /// With `starts_all` it starts buckets that are not complete, too.
  void finish(std::source_location where, bool starts_all) {
    std::vector<std::uint8_t> used;
    try {
      if (find_unused_) {
        used = ready_;
      }
      if (starts_all) {
        pending_.assign(buckets_.size(), 0);
      }
      start_complete_buckets(where);  // also those whose start failed before
      finish_buckets(used, where);
    } catch (...) {
      clean_up(where);
      begin_next_pass();
      throw;
    }
    begin_next_pass();
  }

  void begin_next_pass() {
    ++pass_;
    next_ = 0;
    adds_nothing_ = false;
    divisor_ = group_.size();
    ready_.assign(parameters_.size(), 0);
    for (std::size_t index = 0; index < buckets_.size(); ++index) {
      pending_[index] = buckets_[index].places.size();
    }
  }

  void start_complete_buckets(std::source_location where) {
    for (; next_ < buckets_.size() && pending_[next_] == 0; ++next_) {
      start_bucket(next_, where);
    }
  }

  std::vector<std::size_t> bucket_of_;
  std::vector<std::uint8_t> ready_;   // 1 for each parameter whose gradient is final
  std::vector<std::size_t> pending_;  // number of gradients of each bucket that are not ready
  std::size_t next_ = 0;              // the next bucket to start
  bool abandoned_ = false;            // this pass ends without `finish`
  std::uint64_t pass_ = 0;            // backward pass; ranks in different ones must not average with each other
  rendezvous::fork_guard creator_;
};

}  // namespace hfcomm::detail
