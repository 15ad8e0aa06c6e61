// SPDX-License-Identifier: MIT
#pragma once

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

/// Has a hook average the gradients of a bucket, `what` but for their names, and waits for its work. Throws what it
/// throws. `announce(text)` tells the other ranks of an exception that they do not have as well: an error of hfcomm is
/// that of an operation in which they take part.
inline void call_hook(const communication_hook& hook, gradient_bucket::description what, const bucket& from,
                      std::span<const ddp_parameter> parameters, function_ref<void(const std::string&)> announce) {
  std::vector<bucket_gradient> gradients;
  gradients.reserve(from.places.size());
  for (const auto& place : from.places) {
    const ddp_parameter& one = parameters[place.parameter];
    gradients.push_back({one.name, one.layout, place.offset / size_of(one.type), one.count()});
  }
  what.gradients = gradients;
  try {
    hook(gradient_bucket(what)).wait();
  } catch (const error&) {
    throw;
  } catch (...) {
    announce(current_exception_text());
    throw;
  }
}

}  // namespace hfcomm::detail
