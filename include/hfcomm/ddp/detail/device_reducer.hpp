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

#include <hfcomm/call/device_call.hpp>
#include <hfcomm/ddp/detail/reducer.hpp>

namespace hfcomm::detail {

/// Averages gradients in device memory, on a stream of the group's own, behind what the caller's stream has when a
/// bucket is complete. It only puts things on streams: the host waits for nothing, except with unused parameters, where
/// the ranks' hosts tell each other which they used.
///
/// A rank that does not finish its pass leaves the others' devices waiting, so that breaks the group.
class device_reducer final : public reducer {
 public:
  /// The group has a device plane. Collective: where one rank has no memory for its buckets, all throw.
  device_reducer(const process_group& group, std::span<const ddp_parameter> parameters, std::size_t first_bytes,
                 std::size_t bytes, bool find_unused, stream_ref stream, std::source_location where)
      : reducer(group, parameters, first_bytes, bytes, find_unused),
        engine_(*group_access::state(group_).devices),
        stream_(stream) {
    // A rank whose gradients lie as they do in the buckets needs none. Not memory that NCCL knows: it makes nothing of
    // that in averages of floating-point numbers, and wants all ranks' memory to be of one kind.
    const std::size_t wanted = staging_bytes([this](const bucket& one) { return in_place(one) == nullptr; });
    auto call = buffer_call<std::byte>("distributed_data_parallel", movement::none, 0, -1, where);
    running_call running(group_, call);
    running.attempt("it has no memory for its buckets: ",
                    [&] { staging_ = wanted != 0 ? engine_.allocate(call, wanted) : nullptr; });
    no_receiver nothing;
    try {
      running.engine().exchange(call, {}, nothing);
    } catch (...) {
      engine_.abort();  // what is under way may wait for that rank, and giving the memory back for it
      throw;
    }
  }

 private:
  /// Where the gradients of a bucket are, if they are one behind the other in its order; otherwise nullptr.
  [[nodiscard]] std::byte* in_place(const bucket& one) const {
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

  void start(std::size_t index, std::source_location where) override {
    const bucket& target = buckets_[index];
    if (target.bytes == 0) {
      return;
    }
    operation call = bucket_call(target, pass(), where);
    call.name = "device distributed_data_parallel";
    if (divisor_ != group_.size()) {
      reduces_with(call, reduce_op::premultiplied_sum(1.0 / divisor_));
    }
    running_device_call running(group_, call);
    require_outside_batch(running);
    std::byte* const own = find_unused_ ? nullptr : in_place(target);
    std::byte* const data = own != nullptr ? own : staging_.get() + staging_offset(index);
    const device_memory memory{data, target.bytes};
    const stream_ref beside = engine_.fork(call, memory, stream_);
    beside_ = beside;
    on_ = memory;
    if (shadowing_) {
      engine_.clear(call, data, target.bytes, beside);
    } else if (own == nullptr) {
      gather(call, target, data, beside);
    }
    running.put(on_stream{beside}, memory, [&](device_engine& engine, stream_ref stream) {
      engine.reduce(call, data, data, target.bytes / size_of(target.type), stream);
    });
    if (own == nullptr && !find_unused_) {
      scatter(call, target, data, beside, [](const bucket::place&) { return true; });
    }
  }

  void end(std::vector<std::uint8_t>& used, std::source_location where) override {
    if (find_unused_) {
      unite_usage(used, pass(), where);
      for (std::size_t index = 0; beside_ && index < buckets_.size(); ++index) {
        scatter(refusal_call(where), buckets_[index], staging_.get() + staging_offset(index), *beside_,
                [&](const bucket::place& place) { return used[place.parameter] != 0; });
      }
    }
    join(where);
  }

  void leave(std::source_location where) noexcept override {
    try {
      engine_.check(refusal_call(where), engine_.sequence());  // frees the device of what will not end
    } catch (...) {
      // Which the caller throws in other words.
    }
    try {
      join(where);
    } catch (...) {
      beside_.reset();  // CUDA is broken, as the caller says
    }
  }

  void refuse(bool incomplete, const std::string& why, std::source_location where) override {
    if (incomplete) {
      operation call = refusal_call(where);
      const auto tell = [](auto&& how) {
        try {
          how();
        } catch (const error&) {
          // Told; or the group has a worse problem, which its next operation reports.
        }
      };
      if (!group_.checks_devices()) {
        tell([&] {
          running_device_call running(group_, call);
          running.require(false, [&] { return why; });
        });
      }
      // Where the others' hosts wait for this one: with unused parameters in `end`, with device checks before each
      // bucket, which they then do not put on their devices.
      if (find_unused_ || group_.checks_devices()) {
        tell([&] { running_call(group_, call).reject(why); });
      }
    }
    try {
      join(where);
    } catch (const error&) {
      beside_.reset();
    }
  }

  /// What follows on the caller's stream begins when the buckets are done.
  void join(std::source_location where) {
    if (!beside_) {
      return;
    }
    const operation call = refusal_call(where);
    const auto mark = engine_.mark(call, on_, *beside_);
    try {
      engine_.order(call, mark, stream_);
    } catch (...) {
      engine_.release(mark);
      throw;
    }
    engine_.release(mark);  // waiting streams keep it as it is now
    beside_.reset();
  }

  void drain() override {}

  void gather(const operation& call, const bucket& target, std::byte* data, stream_ref stream) {
    for (const auto& place : target.places) {
      const auto gradient = parameters_[place.parameter].gradient;
      if (is_used(place)) {
        engine_.copy(call, gradient.data(), data + place.offset, gradient.size(), stream);
      } else {
        engine_.clear(call, data + place.offset, gradient.size(), stream);
      }
    }
  }
  template <class Wanted>
  void scatter(const operation& call, const bucket& target, const std::byte* data, stream_ref stream, Wanted wanted) {
    for (const auto& place : target.places) {
      const auto gradient = parameters_[place.parameter].gradient;
      if (wanted(place)) {
        engine_.copy(call, data + place.offset, gradient.data(), gradient.size(), stream);
      }
    }
  }

  void require_outside_batch(running_device_call& running) const {
    running.require(!engine_.in_batch(), [] {
      return "inside an nccl_group_scope gradients cannot be averaged while backward goes on; end it before";
    });
  }

  device_engine& engine_;
  stream_ref stream_;                 // of the caller
  std::optional<stream_ref> beside_;  // the engine's own, once something of this pass is on it
  device_memory on_{};                // of the last bucket
  std::shared_ptr<std::byte> staging_;
};

}  // namespace hfcomm::detail
