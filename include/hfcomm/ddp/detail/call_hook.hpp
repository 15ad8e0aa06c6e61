// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/call/announce_failure.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/function_ref.hpp>
#include <hfcomm/ddp/communication_hook.hpp>
#include <hfcomm/ddp/detail/bucket.hpp>
#include <hfcomm/ddp/parameter.hpp>

namespace hfcomm::detail {

/// Returns whether the exception that is being handled is an error of an operation, which all ranks of its group have.
inline bool current_exception_is_of_operation() {
  try {
    throw;
  } catch (const error& problem) {
    return problem.sequence() != 0;
  } catch (...) {
    return false;
  }
}

/// Has a hook average the gradients of a bucket, `what` but for their names, and waits for its work. Throws what it
/// throws, after `announce(text)` has told the other ranks, unless they have it as well.
inline void call_hook(const communication_hook& hook, gradient_bucket::description what, const bucket& from,
                      std::span<const ddp_parameter> parameters, function_ref<void(const std::string&)> announce) {
  std::vector<bucket_gradient> gradients;
  gradients.reserve(from.places.size());
  for (const auto& place : from.places) {
    const ddp_parameter& one = parameters[place.parameter];
    gradients.push_back({one.name, one.layout, place.offset / size_of(one.type), one.count()});
  }
  what.gradients = gradients;
  what.outcome = std::make_shared<hook_outcome>();
  try {
    hook(gradient_bucket(what)).wait();
  } catch (...) {
    const bool others_know = what.outcome->failed_on_all.load() ||
                             (!what.outcome->failed_elsewhere.load() && current_exception_is_of_operation());
    if (!others_know) {
      announce(current_exception_text());
    }
    throw;
  }
}

}  // namespace hfcomm::detail
