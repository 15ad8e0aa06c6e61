// SPDX-License-Identifier: MIT
#pragma once

#include <exception>
#include <utility>

#include <hfcomm/call/async.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/ddp/communication_hook.hpp>
#include <hfcomm/ddp/detail/average_call.hpp>
#include <hfcomm/ddp/detail/mean_of_sum.hpp>
#include <hfcomm/group/detail/running_call.hpp>
#include <hfcomm/group/work.hpp>

namespace hfcomm {

namespace detail {

/// Averages elements in host memory, as `gradient_bucket::average` says. Sets `failed` where that fails; `outcome`
/// keeps it.
inline void average_values(const gradient_average& wanted, std::span<std::byte> bytes, int divisor,
                           const std::shared_ptr<hook_outcome>& /*outcome*/, std::atomic<bool>* failed,
                           const process_group& group, std::source_location where) {
  try {
    operation call = average_call(wanted, bytes.size(), where);
    running_call running(group, call);
    const bool is_narrow = size_of(wanted.type) == 2;
    std::vector<float> wide(is_narrow && divisor != group.size() ? wide_sum_elements : 0);
    mean_of_sum(running.engine(), call, bytes, wide, divisor);
  } catch (...) {
    failed->store(true);
    throw;
  }
}

HFCOMM_INLINE void require_host_bucket(const gradient_bucket& bucket, const char* hook) {
  if (bucket.on_device()) {
    detail::throw_error<usage_error>(
        {bucket.group().rank(), bucket.group().size(), "distributed_data_parallel", 0, bucket.where()},
        {hook, " is for gradients in host memory; these are on a device"});
  }
}

}  // namespace detail

HFCOMM_INLINE void gradient_bucket::require_type(element_type wanted) const {
  if (wanted != type()) {
    detail::throw_error<usage_error>(
        {group().rank(), group().size(), "distributed_data_parallel", 0, where()},
        {"the bucket's gradients are of type ", to_string(type()), ", not ", to_string(wanted)});
  }
}

HFCOMM_INLINE work<void> gradient_bucket::average_bytes(element_type type, detail::reduction_kernel kernel,
                                                        std::span<std::byte> bytes) const {
  return detail::start("distributed_data_parallel", detail::average_values, group(), where(),
                       detail::gradient_average{type, kernel, pass()}, bytes, divisor(), what_->outcome,
                       &what_->outcome->failed_on_all);
}

HFCOMM_INLINE work<void> gradient_bucket::average_within(const process_group& other) const {
  detail::require_host_bucket(*this, "average_within");
  return detail::start("distributed_data_parallel", detail::average_values, other, where(),
                       detail::gradient_average{type(), what_->kernel, pass()}, bytes(), other.size(), what_->outcome,
                       &what_->outcome->failed_elsewhere);
}

HFCOMM_INLINE work<void> gradient_bucket::average() const {
  if (!on_device()) {
    return average_bytes(type(), what_->kernel, bytes());
  }
  // Not a coroutine: g++ puts those of functions that are no templates into every object.
  const auto state = detail::make_coroutine_state();
  const auto value = std::make_shared<detail::work_value<void>>();
  std::exception_ptr problem;
  try {
    detail::put_device_average(*what_);
    value->value.emplace();
  } catch (...) {
    problem = std::current_exception();
  }
  static_cast<void>(state->finish(std::move(problem)));
  return work<void>(state, value);
}

}  // namespace hfcomm
