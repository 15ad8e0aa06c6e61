// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/ddp/detail/chunk_ring.hpp>
#include <hfcomm/ddp/detail/mean_of_sum.hpp>
#include <hfcomm/ddp/detail/queued_reducer.hpp>

namespace hfcomm::detail {

/// Averages gradients in device memory on the CPU, chunk by chunk in a chunk_ring, with the bits of a host_reducer.
///
/// The caller's stream and the copies wait for each other on the device. The host waits for copies down on the thread
/// of the reductions alone, and for the sums in `finish`.
///
/// With unused parameters no gradient is written before the usage on all ranks is known, so the ring then has a slot
/// for every chunk of the model.
class staged_reducer final : public queued_reducer {
 public:
  /// Collective: where one rank has no memory for its buckets, or no thread, all throw.
  staged_reducer(const process_group& group, std::span<ddp_parameter> parameters, const ddp_options& options,
                 std::shared_ptr<chunk_ring> ring, std::source_location where)
      : queued_reducer(group, parameters, options, true),
        ring_(std::move(ring)),
        stream_(options.stream),
        where_(where) {
    operation call = buffer_call<std::byte>("distributed_data_parallel", movement::none, 0, -1, where);
    running_call running(group_, call);
    running.attempt("it has no memory for its buckets: ", [&] {
      make_buckets();
      start_thread(where, [ring = ring_] { ring->copies().use_device(); });
    });
    running.exchange_nothing();
  }

  ~staged_reducer() override {
    ring_->cancel();
    stop_thread();
  }

 private:
  /// The state of a bucket from the call that starts it to the end of its pass.
  struct started_bucket {
    device_copies::event_handle ready = nullptr;  // after the work on the caller's stream
    std::exception_ptr problem{};                 // of recording it
    std::size_t first_slot = 0;                   // with unused parameters
  };

  std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
    return ring_->copies().allocate(bytes, stream_, where_);
  }

  void prepare_staging() override {
    std::vector<started_bucket> wanted(buckets_.size());
    std::size_t slots = 0;
    for (std::size_t index = 0; index < wanted.size(); ++index) {
      wanted[index].ready = index < started_.size() ? started_[index].ready : ring_->copies().make_event(where_);
      wanted[index].first_slot = slots;
      slots += ring_->chunks_of(buckets_[index].bytes);
    }
    if (find_unused_) {
      ring_->reserve(slots, where_);
    }
    started_ = std::move(wanted);
  }

  void copy_gradient(std::span<const std::byte> from, std::span<std::byte> to, std::source_location where) override {
    if (const std::string problem = ring_->copies().problem_of({from.data(), from.size()}); !problem.empty()) {
      throw_error<usage_error>({group_.rank(), group_.size(), "distributed_data_parallel", 0, where}, {problem});
    }
    ring_->copies().copy_within(from.data(), to.data(), from.size(), stream_, where);
  }

  /// A failure here fails the job, so that `finish` throws it, and the other ranks are told.
  void start_bucket(std::size_t index, std::source_location where) override {
    if (buckets_[index].bytes == 0) {
      return;
    }
    started_[index].problem = nullptr;
    try {
      ring_->copies().record(started_[index].ready, stream_, where);
    } catch (...) {
      started_[index].problem = std::current_exception();
    }
    queued_reducer::start_bucket(index, where);
  }

  void reduce(const job& next) override {
    const bucket& target = buckets_[next.bucket];
    const auto began = std::chrono::steady_clock::now();
    const auto fill = [&](std::span<std::byte> places) {
      adds_nothing_ ? fill_with_negative_zeros(target.type, places)
                    : static_cast<void>(std::memset(places.data(), 0, places.size()));
    };
    const auto sum = [&](std::span<std::byte> chunk) { average(next, chunk); };
    const auto announce = [&](const std::string& why) { tell_others(why, next.where); };
    if (started_[next.bucket].problem != nullptr) {
      fail_to_start(next);
    }
    const auto parts = parts_of(target, !find_unused_);
    const std::size_t first = find_unused_ ? started_[next.bucket].first_slot : next_slot_;
    next_slot_ += ring_->chunks_of(target.bytes);
    ring_->run(parts, started_[next.bucket].ready, first, {fill, sum, announce}, next.where);
    std::size_t copied = 0;
    for (const staged_part& one : parts) {
      copied += one.goes_down ? one.bytes.size() : 0;
    }
    record_bucket(target.bytes, copied);
    record_reduction(std::chrono::steady_clock::now() - began);
  }

  [[noreturn]] void fail_to_start(const job& next) {
    try {
      std::rethrow_exception(started_[next.bucket].problem);
    } catch (...) {
      tell_others(current_exception_text(), next.where);
      throw;
    }
  }

  /// Returns a bucket's gradients in their order. Those that this rank did not use do not come down. With `go_up` those
  /// go up that any rank used.
  [[nodiscard]] std::vector<staged_part> parts_of(const bucket& target, bool go_up) const {
    std::vector<staged_part> parts;
    parts.reserve(target.places.size());
    for (const auto& place : target.places) {
      parts.push_back({.bytes = parameters_[place.parameter].gradient,
                       .goes_down = !adds_nothing_ && is_used(place),
                       .goes_up = go_up && was_used(place.parameter)});
    }
    return parts;
  }

  void finish_buckets(std::source_location where) override {
    wait_for_jobs();
    try {
      for (std::size_t index = 0; find_unused_ && index < buckets_.size(); ++index) {
        ring_->bring_up(parts_of(buckets_[index], true), started_[index].first_slot, where);
      }
      ring_->order_after_copies(stream_, where);
    } catch (...) {
      announce_failure(true, current_exception_text(), where);
      throw;
    }
    end_pass(where);
  }

  void clean_up(std::source_location where) noexcept override { end_copies(where); }

  void wait_for_started() override { end_copies(where_); }

  /// Ends the copies of a pass that failed: what follows on the caller's stream comes after them.
  void end_copies(std::source_location where) noexcept {
    try {
      queued_reducer::wait_for_started();
      ring_->order_after_copies(stream_, where);
    } catch (...) {
      return;  // CUDA fails, which the pass or the next one reports
    }
  }

  std::shared_ptr<chunk_ring> ring_;
  stream_ref stream_;           // of the caller
  std::source_location where_;  // of the constructor
  std::vector<started_bucket> started_;
  std::size_t next_slot_ = 0;  // of the ring, where it is not one for every chunk
};

}  // namespace hfcomm::detail
