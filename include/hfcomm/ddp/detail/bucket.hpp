// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include <hfcomm/ddp/parameter.hpp>

namespace hfcomm::detail {

/// Parameters of one element type whose gradients are reduced together.
struct bucket {
  struct place {
    std::size_t parameter;  // index
    std::size_t offset;     // in bytes
  };

  element_type type = element_type::none;
  reduction_kernel kernel = nullptr;
  std::vector<place> places;
  std::size_t bytes = 0;
};

/// Returns buckets that hold all parameters. They are filled in reverse order of registration, because backward
/// produces gradients from the last layer to the first. The first bucket is small so that communication starts early,
/// the others are large so that it is efficient. The result depends on types and sizes alone, so it is the same on all
/// ranks. (torch's constants.)
///
/// Within a bucket the parameters are in the order of registration: the order in memory where one allocation holds all
/// gradients of the model.
inline std::vector<bucket> plan_buckets(std::span<const ddp_parameter> parameters, std::size_t first_bytes,
                                        std::size_t bytes) {
  std::vector<bucket> buckets;
  std::map<element_type, std::size_t> open;  // for each type, the bucket that is being filled
  for (std::size_t index = parameters.size(); index-- > 0;) {
    const ddp_parameter& parameter = parameters[index];
    const auto found = open.find(parameter.type);
    const bool fits = found != open.end() && (buckets[found->second].bytes + parameter.gradient.size() <=
                                              (found->second == 0 ? first_bytes : bytes));
    if (!fits) {
      open[parameter.type] = buckets.size();
      buckets.push_back({parameter.type, parameter.kernel, {}, 0});
    }
    bucket& target = buckets[open[parameter.type]];
    target.places.push_back({index, 0});
    target.bytes += parameter.gradient.size();
  }
  for (bucket& one : buckets) {
    std::reverse(one.places.begin(), one.places.end());
    std::size_t offset = 0;
    for (auto& place : one.places) {
      place.offset = offset;
      offset += parameters[place.parameter].gradient.size();
    }
  }
  return buckets;
}

}  // namespace hfcomm::detail
