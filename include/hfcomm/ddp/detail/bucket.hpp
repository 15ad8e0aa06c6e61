// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
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
  std::shared_ptr<std::byte> memory{};  ///< Where its gradients lie; null where the model holds all of them.
};

/// Returns the indices of `count` parameters in the order in which backward usually produces their gradients: from the
/// last layer to the first.
inline std::vector<std::uint32_t> reverse_order(std::size_t count) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.rbegin(), order.rend(), std::uint32_t{0});
  return order;
}

/// Returns buckets that hold all parameters, filled in `order`. The first bucket is small so that communication starts
/// early, the others are large so that it is efficient. The result depends on the order, types and sizes alone, so it
/// is the same on all ranks. (torch's constants.)
///
/// Within a bucket the parameters are in the order of registration: the order in memory where one allocation holds all
/// gradients of the model.
inline std::vector<bucket> plan_buckets(std::span<const ddp_parameter> parameters, std::span<const std::uint32_t> order,
                                        std::size_t first_bytes, std::size_t bytes) {
  std::vector<bucket> buckets;
  std::map<element_type, std::size_t> open;  // for each type, the bucket that is being filled
  for (const std::size_t index : order) {
    const ddp_parameter& parameter = parameters[index];
    const auto found = open.find(parameter.type);
    const bool fits = found != open.end() && (buckets[found->second].bytes + parameter.value.size() <=
                                              (found->second == 0 ? first_bytes : bytes));
    if (!fits) {
      open[parameter.type] = buckets.size();
      buckets.push_back({parameter.type, parameter.kernel, {}, 0});
    }
    bucket& target = buckets[open[parameter.type]];
    target.places.push_back({index, 0});
    target.bytes += parameter.value.size();
  }
  for (bucket& one : buckets) {
    std::ranges::sort(one.places, {}, &bucket::place::parameter);
    std::size_t offset = 0;
    for (auto& place : one.places) {
      place.offset = offset;
      offset += parameters[place.parameter].value.size();
    }
  }
  return buckets;
}

/// Returns where a bucket begins in memory that holds all buckets, one after another, and for their number how long
/// that memory is. A bucket of every type may begin there.
inline std::size_t offset_of(std::span<const bucket> buckets, std::size_t index) {
  std::size_t offset = 0;
  for (const bucket& before : buckets.first(index)) {
    offset += (before.bytes + 255) / 256 * 256;
  }
  return offset;
}

/// Returns the bytes of memory in which gradients are packed: for all buckets where it `holds_all`, otherwise for the
/// largest one for which `needs_staging(bucket)` is true.
template <class Predicate>
std::size_t staging_bytes(std::span<const bucket> buckets, bool holds_all, Predicate needs_staging) {
  std::size_t largest = 0;
  for (const bucket& one : buckets) {
    largest = needs_staging(one) ? std::max(largest, one.bytes) : largest;
  }
  return holds_all ? offset_of(buckets, buckets.size()) : largest;
}

/// Returns whether two plans put the same parameters into each bucket.
inline bool are_equal_plans(std::span<const bucket> left, std::span<const bucket> right) {
  const auto same_parameters = [](const bucket& one, const bucket& other) {
    return std::ranges::equal(one.places, other.places, {}, &bucket::place::parameter, &bucket::place::parameter);
  };
  return std::ranges::equal(left, right, same_parameters);
}

}  // namespace hfcomm::detail
