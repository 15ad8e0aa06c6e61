// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <cstring>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/core/shared_buffer.hpp>
#include <hfcomm/ddp/detail/mean_of_sum.hpp>
#include <hfcomm/ddp/detail/queued_reducer.hpp>
#include <hfcomm/group/detail/group_state.hpp>
#include <hfcomm/group/detail/running_call.hpp>
#include <hfcomm/group/shared_range.hpp>

namespace hfcomm::detail {

/// Averages gradients in host memory.
class host_reducer final : public queued_reducer {
 public:
  /// Throws engine_error where there is no thread for the reductions, or a gradient cannot be shared as the options
  /// want; of the latter the other ranks throw peer_error. Collective.
  host_reducer(const process_group& group, std::span<ddp_parameter> parameters, const ddp_options& options,
               std::source_location where)
      : queued_reducer(group, parameters, options, static_cast<bool>(options.hook)),
        shares_gradients_(options.share_memory && !find_unused_ && group_access::engine(group_).can_share()),
        where_(where) {
    if (options.share_memory) {
      operation call = buffer_call<std::byte>("distributed_data_parallel", movement::none, 0, -1, where);
      running_call running(group_, call);
      running.attempt("share_memory: ", [&] { make_buckets(); });
      running.exchange_nothing();
    } else {
      make_buckets();
    }
    start_thread(where, [] {});
  }

  ~host_reducer() override { stop_thread(); }

 private:
  void prepare_staging() override {
    staging_ = group_.allocate<std::byte>(staging_bytes(
        buckets_, find_unused_, [](const bucket& one) { return one.memory == nullptr && one.places.size() > 1; }));
    if (shares_gradients_) {
      share_gradients();
    }
  }

  /// Shares the gradients of the model that are reduced where they are, alone in their buckets.
  void share_gradients() {
    shared_.clear();
    for (const bucket& one : buckets_) {
      if (one.memory == nullptr && one.places.size() == 1) {
        const ddp_parameter& alone = parameters_[one.places.front().parameter];
        try {
          shared_.push_back(share_bytes({&alone.gradient, 1}, group_, where_));
        } catch (const engine_error& problem) {
          throw_error<engine_error>(problem.context(), {"the gradient of ", alone.name, ": ", problem.detail()});
        }
      }
    }
  }

  void finish_buckets(std::source_location where) override {
    end_pass(where);
    for (std::size_t index = 0; find_unused_ && index < buckets_.size(); ++index) {
      unpack(buckets_[index], data_of(index).data(), copy_bytes);
    }
  }

  void reduce(const job& next) override {
    const bucket& target = buckets_[next.bucket];
    const auto began = std::chrono::steady_clock::now();
    const std::span<std::byte> data = data_of(next.bucket);
    std::size_t copied = 0;
    if (adds_nothing_) {
      fill_with_negative_zeros(target.type, data);
    } else {
      copied =
          pack(target, data.data(), copy_bytes, [](std::byte* to, std::size_t bytes) { std::memset(to, 0, bytes); });
    }
    if (has_hook()) {
      run_hook(describe(next.bucket, data, next.pass, next.where),
               [&](const std::string& why) { tell_others(why, next.where); });
    } else {
      average(next, data);
    }
    if (!find_unused_) {
      unpack(target, data.data(), copy_bytes);
    }
    record_bucket(target.bytes, copied);
    record_reduction(std::chrono::steady_clock::now() - began);
  }

  static void copy_bytes(const std::byte* from, std::byte* to, std::size_t bytes) { std::memcpy(to, from, bytes); }

  /// Returns the memory in which a bucket is reduced: that of its gradients if they are together, or staging.
  std::span<std::byte> data_of(std::size_t index) {
    const bucket& target = buckets_[index];
    if (!find_unused_ && target.memory != nullptr) {
      return {target.memory.get(), target.bytes};
    }
    if (!find_unused_ && target.places.size() == 1) {
      return parameters_[target.places.front().parameter].gradient;
    }
    return std::span(staging_).subspan(staging_offset(index), target.bytes);
  }

  bool shares_gradients_;
  std::source_location where_;        // of the constructor's call
  std::vector<shared_range> shared_;  // the gradients
  shared_buffer<std::byte> staging_;  // the group's shared memory, which is reduced in place
};

}  // namespace hfcomm::detail
