// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/function_ref.hpp>
#include <hfcomm/core/shared_buffer.hpp>
#include <hfcomm/ddp/communication_hook.hpp>
#include <hfcomm/ddp/ddp_options.hpp>
#include <hfcomm/ddp/detail/bucket.hpp>
#include <hfcomm/ddp/detail/call_hook.hpp>
#include <hfcomm/ddp/detail/marks.hpp>
#include <hfcomm/ddp/parameter.hpp>
#include <hfcomm/ddp/pass_record.hpp>
#include <hfcomm/machine/fork_guard.hpp>

namespace hfcomm::detail {

/// Averages gradients bucket by bucket, in a group of its own, while the caller continues to compute. This base holds
/// the buckets, and counts which gradients are ready; the derived classes average a bucket.
///
/// Every rank starts the buckets strictly in their order, whatever order the gradients become ready in, so that the
/// ranks' reductions match. The caller must not touch a gradient between `mark_ready` and `finish`.
///
/// Gradients that the model does not hold lie in the memory of their bucket, where they are reduced. With unused
/// parameters no gradient is written before the usage on all ranks is known, so that all are copied.
class reducer {
 public:
  /// The parameters must outlive the reducer, which gives gradients to those that have none. Without `can_rebuild` the
  /// buckets stay as they are.
  reducer(const process_group& group, std::span<ddp_parameter> parameters, const ddp_options& options, bool can_rebuild)
      : group_(group),
        parameters_(parameters),
        find_unused_(options.find_unused_parameters),
        first_bucket_bytes_(options.first_bucket_bytes),
        bucket_bytes_(options.bucket_bytes),
        hook_(options.hook),
        is_held_here_(parameters.size()),
        bucket_of_(parameters.size()),
        marks_(parameters.size(), options.static_graph),
        knows_usage_(!options.static_graph),
        keeps_buckets_(!can_rebuild || !options.rebuild_buckets || options.find_unused_parameters) {
    for (std::size_t index = 0; index < parameters.size(); ++index) {
      is_held_here_[index] = !parameters[index].has_gradient && !parameters[index].value.empty();
    }
  }
  reducer(const reducer&) = delete;
  reducer& operator=(const reducer&) = delete;
  virtual ~reducer() = default;

  /// Returns false in the child of a fork, where no other function may be called, not even the destructor.
  [[nodiscard]] bool in_creating_process() const noexcept { return creator_.in_creating_process(); }
  [[nodiscard]] const marks& gradient_marks() const noexcept { return marks_; }
  [[nodiscard]] std::size_t bucket_count() const noexcept { return buckets_.size(); }
  /// Returns the number of the current or next backward pass, from 1.
  [[nodiscard]] std::uint64_t pass_number() const noexcept { return record_.pass; }
  /// Returns what the last averaged pass did.
  [[nodiscard]] const ddp_pass_record& last_record() const noexcept { return last_record_; }
  /// Returns whether any rank used the parameter in the last averaged pass.
  [[nodiscard]] bool was_used(std::size_t parameter) const { return used_.empty() || used_[parameter] != 0; }
  /// Returns what keeps the gradient's memory; null where the model holds the gradient.
  [[nodiscard]] std::shared_ptr<void> gradient_memory(std::size_t parameter) const {
    return is_held_here_[parameter] ? buckets_[bucket_of_[parameter]].memory : nullptr;
  }

  /// Prepares the next pass, where the one before has ended: waits for the reductions of a pass that `abandon` ended,
  /// and fills the buckets anew once that is agreed. To be called before every other function.
  void prepare() {
    if (abandoned_) {
      wait_for_started();
      abandoned_ = false;
      begin_next_pass();
    }
    if (!next_order_.empty()) {
      auto plan = plan_buckets(parameters_, next_order_, first_bucket_bytes_, bucket_bytes_);
      if (!are_equal_plans(plan, buckets_)) {
        adopt(std::move(plan));
      }
      next_order_.clear();
    }
  }

  /// Divides the sums of this pass by `ranks` instead of the group's size. The same on all ranks.
  void divide_by(int ranks) noexcept { divisor_ = ranks; }

  /// Takes part in a whole pass without a backward of this rank. With `adds_gradients` it adds all of this rank's
  /// gradients, otherwise nothing. They are overwritten with the averages that the other ranks get.
  void shadow(bool adds_gradients, call_site where) {
    adds_nothing_ = !adds_gradients;
    marks_.set_all(adds_gradients);
    finish(where, true);
  }

  /// Sets the gradient, which lies at `source`, unless it lies there already. `source` has its length.
  void set_gradient(std::size_t parameter, std::span<const std::byte> source, call_site where) {
    const auto gradient = parameters_[parameter].gradient;
    if (source.data() != gradient.data() && !source.empty()) {
      copy_gradient(source, gradient, where);
      copied_by_caller_ += source.size();
    }
  }

  /// Declares the gradient of `parameter` final.
  void mark_ready(std::size_t parameter, call_site where) {
    if (marks_.add(parameter)) {
      --pending_[bucket_of_[parameter]];
      start_complete_buckets(where);
    }
  }

  /// Notes that a gradient was added to in a pass that is not averaged.
  void mark_accumulated(std::size_t parameter) { marks_.set_used(parameter); }

  /// Ends the pass, after which every gradient is the average over the ranks. Throws the errors of the reductions.
  void finish(call_site where) { finish(where, find_unused_ || marks_.are_learning()); }

  /// Tells the other ranks that this one does not finish its pass, unless all buckets were started. Does not wait: the
  /// gradients may be touched again after `prepare`.
  void abandon(const std::string& why, call_site where) {
    const bool is_incomplete = next_ < buckets_.size() || wants_usage();
    announce_failure(is_incomplete, why, where);
    abandoned_ = true;
  }

  /// Counts a backward pass whose gradients are not reduced. The numbers of reduced passes must match on all ranks.
  void skip_pass() noexcept { ++record_.pass; }

 protected:
  // NOLINTBEGIN(*non-private-member*): shared with the derived classes
  process_group group_;
  std::span<ddp_parameter> parameters_;
  std::vector<bucket> buckets_;
  bool find_unused_;
  bool adds_nothing_ = false;  // this rank's part of the sums is zero in this pass
  int divisor_ = 0;            // of this pass's sums
  // NOLINTEND(*non-private-member*)

  // The defaults suit gradients in host memory, in a group of one.

  /// Returns `bytes` zeros of memory in which this group's gradients are reduced best. Not collective.
  [[nodiscard]] virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) {
    const auto memory = std::make_shared<shared_buffer<std::byte>>(group_.allocate<std::byte>(bytes));
    return {memory, memory->data()};
  }
  /// Prepares memory for the gradients of buckets that are copied. Called where the buckets have changed.
  virtual void prepare_staging() {}
  /// Copies a gradient.
  virtual void copy_gradient(std::span<const std::byte> from, std::span<std::byte> to, call_site /*where*/) {
    std::memcpy(to.data(), from.data(), from.size());
  }
  /// Starts to reduce a bucket, after those that were started before.
  virtual void start_bucket(std::size_t index, call_site where) = 0;
  /// Has `exchange_order` called before the first bucket is reduced, where buckets can be filled anew.
  virtual void start_order(order_agreement& /*wanted*/, call_site /*where*/) {}
  /// Has `combine_usage` called after the buckets that were started, and waits for it.
  virtual void start_usage(std::vector<std::uint8_t>& /*used*/, call_site /*where*/) {}
  /// Ends the reductions of a pass, after the last bucket was started.
  virtual void finish_buckets(call_site /*where*/) {}
  /// Cleans up after an error that ends the pass. The error is thrown afterwards.
  virtual void clean_up(call_site /*where*/) noexcept {}
  /// Ends a pass that this rank does not finish. Tells the other ranks `why` if the pass `is_incomplete`. Does not
  /// throw where they cannot be told.
  virtual void announce_failure(bool /*is_incomplete*/, const std::string& /*why*/, call_site /*where*/) {}
  /// Waits for the reductions that were started, where the host has to.
  virtual void wait_for_started() {}

  /// Takes the first buckets. To be called by the constructors of derived classes.
  void make_buckets() {
    adopt(plan_buckets(parameters_, reverse_order(parameters_.size()), first_bucket_bytes_, bucket_bytes_));
    begin_next_pass();
  }

  [[nodiscard]] bool is_used(const bucket::place& place) const { return marks_.is_used(place.parameter); }

  /// Brings the gradients of a bucket into `data`, unless they lie there: calls `copy(from, to, bytes)`, or
  /// `clear(to, bytes)` for those that this rank did not use. Returns how many bytes were copied.
  template <class Copy, class Clear>
  std::size_t pack(const bucket& target, std::byte* data, Copy copy, Clear clear) const {
    std::size_t copied = 0;
    for (const auto& place : target.places) {
      const auto gradient = parameters_[place.parameter].gradient;
      std::byte* const to = data + place.offset;
      if (gradient.empty()) {
        continue;
      }
      if (!is_used(place)) {
        clear(to, gradient.size());
      } else if (gradient.data() != to) {
        copy(gradient.data(), to, gradient.size());
        copied += gradient.size();
      }
    }
    return copied;
  }

  /// Copies the averages that any rank used from `data` into the gradients. The others stay as they are.
  template <class Copy>
  void unpack(const bucket& target, const std::byte* data, Copy copy) const {
    for (const auto& place : target.places) {
      const auto gradient = parameters_[place.parameter].gradient;
      const std::byte* const from = data + place.offset;
      if (was_used(place.parameter) && !gradient.empty() && gradient.data() != from) {
        copy(from, gradient.data(), gradient.size());
      }
    }
  }

  /// Returns the offset of a bucket in the memory in which gradients are packed.
  [[nodiscard]] std::size_t staging_offset(std::size_t index) const {
    return find_unused_ ? offset_of(buckets_, index) : 0;
  }

  [[nodiscard]] bool has_hook() const noexcept { return static_cast<bool>(hook_); }

  /// Returns a bucket whose gradients are in `data`, without its gradients' names. On a device it has a stream.
  [[nodiscard]] gradient_bucket::description describe(std::size_t index, std::span<std::byte> data, std::uint64_t pass,
                                                      call_site where) const {
    const bucket& one = buckets_[index];
    return {.data = data,
            .type = one.type,
            .kernel = one.kernel,
            .index = index,
            .pass = pass,
            .divisor = divisor_,
            .group = group_,
            .where = where};
  }

  /// Has the hook average a bucket. See call_hook.
  void run_hook(const gradient_bucket::description& what, function_ref<void(const std::string&)> announce) const {
    call_hook(hook_, what, buckets_[what.index], parameters_, announce);
  }

  void record_bucket(std::size_t bytes, std::size_t copied) noexcept {
    record_.bytes += bytes;
    record_.copied_bytes += copied;
    ++record_.buckets;
  }
  void record_reduction(std::chrono::nanoseconds took) noexcept { record_.reducing += took; }

 private:
  /// Takes other buckets, and moves the gradients that lie in buckets. Changes no bucket where that fails.
  void adopt(std::vector<bucket> plan) {
    for (bucket& one : plan) {
      const bool holds =
          std::ranges::any_of(one.places, [this](const auto& at) { return is_held_here_[at.parameter]; });
      one.memory = holds ? allocate(one.bytes) : nullptr;
    }
    copy_held_gradients(plan);
    const auto before = std::exchange(buckets_, std::move(plan));  // keeps the memory until everything has moved
    try {
      prepare_staging();
    } catch (...) {
      buckets_ = before;
      throw;
    }
    for (std::size_t index = 0; index < buckets_.size(); ++index) {
      for (const auto& place : buckets_[index].places) {
        bucket_of_[place.parameter] = index;
        if (is_held_here_[place.parameter]) {
          parameters_[place.parameter].gradient = place_in(buckets_[index], place);
        }
      }
    }
    begin_marks();
  }

  /// Copies the gradients that lie in buckets to their places in others.
  void copy_held_gradients(const std::vector<bucket>& to) {
    for (const bucket& one : to) {
      for (const auto& place : one.places) {
        const ddp_parameter& parameter = parameters_[place.parameter];
        if (is_held_here_[place.parameter] && !parameter.gradient.empty()) {
          copy_gradient(parameter.gradient, place_in(one, place), call_site::current());
        }
      }
    }
  }

  /// Returns the bytes of a gradient in its bucket's memory.
  [[nodiscard]] std::span<std::byte> place_in(const bucket& one, const bucket::place& place) const {
    return {one.memory.get() + place.offset, parameters_[place.parameter].value.size()};
  }

  [[nodiscard]] bool wants_usage() const noexcept { return find_unused_ || !knows_usage_; }

  /// With `starts_all` it starts buckets that are not complete, too.
  void finish(call_site where, bool starts_all) {
    const auto began = std::chrono::steady_clock::now();
    try {
      if (starts_all) {
        pending_.assign(buckets_.size(), 0);
      }
      if (!knows_usage_) {
        agree_on_usage(where);  // no rank has started a bucket
      }
      start_complete_buckets(where);  // also those whose start failed before
      if (find_unused_) {
        agree_on_usage(where);
      }
      finish_buckets(where);
    } catch (...) {
      clean_up(where);
      begin_next_pass();
      throw;
    }
    knows_usage_ = true;
    marks_.learn();
    if (!keeps_buckets_ && !agreement_.is_reached) {
      agreement_.order = marks_.order();
    }
    record_.copied_bytes += copied_by_caller_;
    record_.exposed = std::chrono::steady_clock::now() - began;
    last_record_ = record_;
    begin_next_pass();
  }

  void agree_on_usage(call_site where) {
    std::vector<std::uint8_t> used = marks_.used();
    if (adds_nothing_ && !find_unused_) {
      used.assign(used.size(), 1);  // once for all passes, and this rank has not said yet what it uses
    }
    start_usage(used, where);
    used_ = std::move(used);
  }

  /// Ends an averaged pass, of which nothing is under way any more.
  void begin_next_pass() {
    if (agreement_.is_reached) {
      next_order_ = std::exchange(agreement_, {}).order;
      keeps_buckets_ = true;
    }
    asks_for_order_ = !keeps_buckets_ && record_.pass != 0;
    record_ = {.pass = record_.pass + 1};
    copied_by_caller_ = 0;
    next_ = 0;
    adds_nothing_ = false;
    divisor_ = group_.size();
    marks_.forget_used();
    begin_marks();
  }

  void begin_marks() {
    marks_.begin_pass();
    pending_.assign(buckets_.size(), 0);
    for (std::size_t parameter = 0; parameter < parameters_.size(); ++parameter) {
      pending_[bucket_of_[parameter]] += marks_.is_complete(parameter) ? 0 : 1;
    }
  }

  void start_complete_buckets(call_site where) {
    for (; next_ < buckets_.size() && pending_[next_] == 0; ++next_) {
      if (std::exchange(asks_for_order_, false)) {
        start_order(agreement_, where);
      }
      if (find_unused_ || has_used(buckets_[next_])) {
        start_bucket(next_, where);
      }
    }
  }

  /// Returns whether any rank uses a parameter of the bucket, where that is known before it is reduced.
  [[nodiscard]] bool has_used(const bucket& one) const {
    return std::ranges::any_of(one.places, [this](const auto& at) { return was_used(at.parameter); });
  }

  std::size_t first_bucket_bytes_;
  std::size_t bucket_bytes_;
  communication_hook hook_;         // empty: none
  std::vector<bool> is_held_here_;  // for each parameter, whether its gradient lies in its bucket's memory
  std::vector<std::size_t> bucket_of_;
  marks marks_;
  std::vector<std::size_t> pending_;  // number of gradients of each bucket that are not ready
  std::size_t next_ = 0;              // the next bucket to start
  bool abandoned_ = false;            // this pass ends without `finish`
  bool knows_usage_;                  // of a static graph
  bool keeps_buckets_;                // the buckets are final, or will be after `next_order_`
  bool asks_for_order_ = false;       // before the next bucket; the same on all ranks
  order_agreement agreement_;
  std::vector<std::uint32_t> next_order_;  // in which buckets are filled before the next pass; empty: they stay
  std::vector<std::uint8_t> used_;         // by any rank, in the last averaged pass; empty: all
  ddp_pass_record record_;                 // ranks in different passes must not average with each other
  std::size_t copied_by_caller_ = 0;       // another thread may be writing to `record_`
  ddp_pass_record last_record_;
  rendezvous::fork_guard creator_;
};

}  // namespace hfcomm::detail
