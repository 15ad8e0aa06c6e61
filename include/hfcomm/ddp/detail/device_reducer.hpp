// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/ddp/detail/average_call.hpp>
#include <hfcomm/ddp/detail/reducer.hpp>
#include <hfcomm/device/detail/device_call.hpp>
#include <hfcomm/engine/device_engine.hpp>
#include <hfcomm/group/detail/group_state.hpp>

namespace hfcomm::detail {

/// Averages gradients in device memory, on a stream of the group's own. A bucket is ordered after the work that the
/// caller's stream has when the bucket is complete. The host does not wait for the device. With unused parameters the
/// ranks' hosts wait for each other, to tell which parameters they used. They do not wait to agree on other buckets.
///
/// A rank that does not finish its pass leaves the others' devices waiting, which breaks the group.
class device_reducer final : public reducer {
 public:
  /// For a group whose device engine is connected. Collective: where one rank has no memory for its buckets, all throw.
  device_reducer(const process_group& group, std::span<ddp_parameter> parameters, const ddp_options& options,
                 std::source_location where)
      : reducer(group, parameters, options, false),
        engine_(*group_access::state(group_).devices),
        stream_(options.stream),
        where_(where) {
    // Buckets whose gradients are contiguous need no memory. The memory is not registered with NCCL, which does not use
    // registration in averages of floating-point numbers. Registration would require the same kind of memory on all
    // ranks.
    auto call = memory_call();
    running_call running(group_, call);
    running.attempt("it has no memory for its buckets: ", [&] { make_buckets(); });
    try {
      running.exchange_nothing();
    } catch (...) {
      engine_.abort();  // work on the device may wait for the failed rank, and freeing the memory would wait for that
      throw;
    }
  }

 private:
  /// Returns where the gradients of a bucket begin if they are contiguous in its order; otherwise nullptr.
  [[nodiscard]] std::byte* contiguous_begin(const bucket& one) const {
    std::byte* begin = nullptr;
    for (const auto& place : one.places) {
      const auto gradient = parameters_[place.parameter].gradient;
      if (gradient.empty()) {
        continue;
      }
      begin = begin == nullptr ? gradient.data() : begin;
      if (gradient.data() != begin + place.offset) {
        return nullptr;
      }
    }
    return begin;
  }

  /// Returns what copies on a stream. The device keeps the order, so the host waits for nothing.
  [[nodiscard]] auto copying_on(const operation& call, stream_ref stream) const {
    return [this, &call, stream](const std::byte* from, std::byte* to, std::size_t bytes) {
      engine_.copy(call, from, to, bytes, stream);
    };
  }

  [[nodiscard]] operation memory_call() const {
    return buffer_call<std::byte>("distributed_data_parallel", movement::none, 0, -1, where_);
  }

  std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
    auto memory = engine_.allocate(memory_call(), bytes);
    engine_.clear(memory_call(), memory.get(), bytes, stream_);
    return memory;
  }

  void prepare_staging() override {
    const std::size_t wanted =
        staging_bytes(buckets_, find_unused_, [this](const bucket& one) { return contiguous_begin(one) == nullptr; });
    staging_ = wanted != 0 ? engine_.allocate(memory_call(), wanted) : nullptr;
  }

  void copy_gradient(std::span<const std::byte> from, std::span<std::byte> to, std::source_location where) override {
    operation call = memory_call();
    call.where = where;
    engine_.copy(call, from.data(), to.data(), from.size(), stream_);
  }

  void start_usage(std::vector<std::uint8_t>& used, std::source_location where) override {
    combine_usage(group_, used, pass_number(), where);
  }

  void start_bucket(std::size_t index, std::source_location where) override {
    const bucket& target = buckets_[index];
    if (target.bytes == 0) {
      return;
    }
    const operation call = average_call({target.type, nullptr, pass_number()}, target.bytes, where);
    std::byte* const in_place = find_unused_ ? nullptr : contiguous_begin(target);
    std::byte* const data = in_place != nullptr ? in_place : staging_.get() + staging_offset(index);
    const device_memory memory{data, target.bytes};
    require_no_batch(where);
    const stream_ref own_stream = engine_.own_stream_after(call, memory, stream_);
    own_stream_ = own_stream;
    last_memory_ = memory;
    std::size_t copied = 0;
    if (adds_nothing_) {
      engine_.clear(call, data, target.bytes, own_stream);
    } else {
      copied = pack(target, data, copying_on(call, own_stream),
                    [&](std::byte* to, std::size_t bytes) { engine_.clear(call, to, bytes, own_stream); });
    }
    auto what = describe(index, {data, target.bytes}, pass_number(), where);
    what.stream = own_stream;
    if (has_hook()) {
      run_hook(what, [&](const std::string& why) { tell_others(why, where); });
    } else {
      put_device_average(what);
    }
    if (!find_unused_) {
      unpack(target, data, copying_on(call, own_stream));
    }
    record_bucket(target.bytes, copied);
  }

  /// Throws usage_error inside an nccl_group_scope; the other ranks are told.
  void require_no_batch(std::source_location where) {
    if (engine_.is_in_batch()) {
      operation call = failed_pass_call(where);
      call.name = "device distributed_data_parallel";
      running_device_call(group_, call)
          .refuse("inside an nccl_group_scope gradients cannot be averaged while backward goes on; end it before");
    }
  }

  void finish_buckets(std::source_location where) override {
    const operation call = failed_pass_call(where);
    for (std::size_t index = 0; find_unused_ && own_stream_ && index < buckets_.size(); ++index) {
      unpack(buckets_[index], staging_.get() + staging_offset(index), copying_on(call, *own_stream_));
    }
    join_streams(where);
  }

  void clean_up(std::source_location where) noexcept override {
    try {
      engine_.check_operation(failed_pass_call(where),
                              engine_.sequence());  // frees the device of work that will not end
    } catch (...) {
      // The caller throws the error that it is cleaning up after.
    }
    try {
      join_streams(where);
    } catch (...) {
      own_stream_.reset();  // CUDA fails, which the caller's error reports
    }
  }

  void announce_failure(bool is_incomplete, const std::string& why, std::source_location where) override {
    if (is_incomplete) {
      tell_others(why, where);
    }
    try {
      join_streams(where);
    } catch (const error&) {
      own_stream_.reset();
    }
  }

  /// Tells the other ranks that this one does not finish its pass.
  void tell_others(const std::string& why, std::source_location where) {
    operation call = failed_pass_call(where);
    if (!group_.checks_devices()) {
      try {
        running_device_call running(group_, call);
        running.require(false, [&] { return why; });
      } catch (const error&) {
        // Expected; or the group has a worse problem, which its next operation reports.
      }
    }
    // Here the others' hosts wait for this one: with unused parameters in `finish_buckets`; with device checks before
    // each bucket, which they then do not put on their devices.
    if (find_unused_ || group_.checks_devices()) {
      try {
        running_call(group_, call).announce_failure(why);
      } catch (const error&) {
        // The group has a worse problem, which its next operation reports.
      }
    }
  }

  /// Orders the following work on the caller's stream after the buckets.
  void join_streams(std::source_location where) {
    if (!own_stream_) {
      return;
    }
    const operation call = failed_pass_call(where);
    const auto event = engine_.record_event(call, last_memory_, *own_stream_);
    try {
      engine_.wait_for_event(call, event, stream_);
    } catch (...) {
      engine_.release_event(event);
      throw;
    }
    engine_.release_event(event);  // streams that wait for it are not affected
    own_stream_.reset();
  }

  device_engine& engine_;
  stream_ref stream_;                     // of the caller
  std::source_location where_;            // of the constructor
  std::optional<stream_ref> own_stream_;  // of the engine; set once it has work of this pass
  device_memory last_memory_{};           // of the last bucket
  std::shared_ptr<std::byte> staging_;
};

}  // namespace hfcomm::detail
