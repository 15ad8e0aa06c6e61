// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/call/call.hpp>
#include <hfcomm/ddp/detail/bucket.hpp>
#include <hfcomm/machine/fork_guard.hpp>

namespace hfcomm::detail {

/// Averages gradients bucket by bucket, in a group of its own, while the caller goes on computing. This part counts;
/// how a bucket is averaged depends on where the gradients are: see host_reducer and device_reducer.
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
    for (std::size_t index = 0; index < buckets_.size(); ++index) {
      for (const auto& place : buckets_[index].places) {
        bucket_of_[place.parameter] = index;
      }
    }
    next_pass();
  }
  reducer(const reducer&) = delete;
  reducer& operator=(const reducer&) = delete;
  virtual ~reducer() = default;

  /// False in the child of a fork, where nothing else may be called, not even the destructor.
  [[nodiscard]] bool at_home() const noexcept { return home_.at_home(); }
  [[nodiscard]] bool is_ready(std::size_t parameter) const { return ready_[parameter]; }
  [[nodiscard]] std::size_t bucket_count() const noexcept { return buckets_.size(); }
  /// The number of the backward pass that is next or under way, from 1.
  [[nodiscard]] std::uint64_t pass() const noexcept { return pass_; }

  /// Waits for what `abandon` left behind. To be called before anything else of a new pass.
  void settle() {
    if (abandoned_) {
      drain();
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
    finish(where, true);
  }

  /// The gradient of `parameter` is final.
  void ready(std::size_t parameter, std::source_location where) {
    ready_[parameter] = true;
    --pending_[bucket_of_[parameter]];
    start_complete_buckets(where);
  }

  /// Ends the pass, after which every gradient is the average over the ranks. Throws what the reductions met.
  void finish(std::source_location where) { finish(where, find_unused_); }

  /// Lets the started buckets end, then tells the other ranks that this one cannot go on with its iteration.
  void give_up(const std::string& why, std::source_location where) {
    abandon(why, where);
    settle();
  }

  /// The same without waiting; the gradients may be touched again after `settle`. Where everything was started, the
  /// others need not be told.
  void abandon(const std::string& why, std::source_location where) {
    const bool incomplete = next_ < buckets_.size() || find_unused_;
    refuse(incomplete, why, where);
    abandoned_ = true;
  }

  /// Counts a backward pass whose gradients are not reduced: the ranks must agree on which ones are.
  void skip_pass() noexcept { ++pass_; }

 protected:
  // NOLINTBEGIN(*non-private-member*): what the two kinds have in common
  process_group group_;
  std::span<const ddp_parameter> parameters_;
  std::vector<bucket> buckets_;
  bool find_unused_;
  bool shadowing_ = false;  // this rank adds nothing in this pass
  int divisor_ = 0;         // of this pass's sums
  // NOLINTEND(*non-private-member*)

  /// Puts the bucket behind those that were started before.
  virtual void start(std::size_t index, std::source_location where) = 0;
  /// After the last bucket. With `find_unused_` it has a word for each parameter: whether it is used.
  virtual void end(std::vector<std::uint8_t>& used, std::source_location where) = 0;
  /// The pass ends with an error, which is thrown afterwards.
  virtual void leave(std::source_location where) noexcept = 0;
  /// This rank does not finish its pass, which the others are to hear if it is `incomplete`. Does not throw what cannot
  /// be told.
  virtual void refuse(bool incomplete, const std::string& why, std::source_location where) = 0;
  /// Waits for what was started.
  virtual void drain() = 0;

  [[nodiscard]] bool is_used(const bucket::place& place) const { return ready_[place.parameter] != 0; }

  /// Bytes to gather gradients in: all buckets, where nothing may be written back before all ranks' usage is known;
  /// otherwise the largest one of those that `wants(bucket)`.
  template <class Wants>
  [[nodiscard]] std::size_t staging_bytes(Wants wants) const {
    std::size_t total = 0;
    std::size_t largest = 0;
    for (const auto& one : buckets_) {
      total += aligned(one.bytes);
      largest = wants(one) ? std::max(largest, one.bytes) : largest;
    }
    return find_unused_ ? total : largest;
  }
  /// Where a bucket is in them.
  [[nodiscard]] std::size_t staging_offset(std::size_t index) const {
    std::size_t offset = 0;
    for (std::size_t before = 0; find_unused_ && before < index; ++before) {
      offset += aligned(buckets_[before].bytes);
    }
    return offset;
  }

  /// The reduction of a bucket.
  [[nodiscard]] operation bucket_call(const bucket& target, std::uint64_t pass, std::source_location where) const {
    return {.name = "distributed_data_parallel",
            .pattern = movement::to_all,
            .content = payload::buffer,
            .element = target.type,
            .reduces = true,
            .op = reduce_op::average,
            .bytes = target.bytes,
            .tag = pass,
            .where = where};
  }

  /// What this rank says instead of a reduction.
  [[nodiscard]] operation refusal_call(std::source_location where) const {
    return reduction_call<float>("distributed_data_parallel", movement::to_all, 0, -1, reduce_op::average, where);
  }

  /// Whether any rank used each parameter. Collective over the host plane.
  void unite_usage(std::vector<std::uint8_t>& used, std::uint64_t pass, std::source_location where) const {
    operation call = reduction_call<std::uint8_t>("distributed_data_parallel", movement::to_all, used.size(), -1,
                                                  reduce_op::max, where);
    call.tag = pass;
    running_call running(group_, call);
    const auto bytes = std::as_writable_bytes(std::span(used));
    running.engine().reduce(call, bytes, bytes);
  }

 private:
  /// Buckets of different types begin where any of these may.
  static constexpr std::size_t aligned(std::size_t bytes) noexcept { return (bytes + 255) / 256 * 256; }

  void finish(std::source_location where, bool with_the_rest) {
    std::vector<std::uint8_t> used;
    try {
      if (find_unused_) {
        used.assign(ready_.begin(), ready_.end());
      }
      if (with_the_rest) {
        pending_.assign(buckets_.size(), 0);
      }
      start_complete_buckets(where);  // one that could not be started before, too
      end(used, where);
    } catch (...) {
      leave(where);
      next_pass();
      throw;
    }
    next_pass();
  }

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
      start(next_, where);
    }
  }

  std::vector<std::size_t> bucket_of_;
  std::vector<char> ready_;
  std::vector<std::size_t> pending_;
  std::size_t next_ = 0;    // the next bucket to start
  bool abandoned_ = false;  // this pass ends without `finish`
  std::uint64_t pass_ = 0;  // of backward; ranks in different ones must not average with each other
  rendezvous::fork_guard home_;
};

}  // namespace hfcomm::detail
