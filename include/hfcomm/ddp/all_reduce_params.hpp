// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/call/async.hpp>
#include <hfcomm/collectives/detail/coalesced_call.hpp>
#include <hfcomm/ddp/parameter.hpp>

/// Reductions of a whole model at once, for training loops without `distributed_data_parallel`.
namespace hfcomm {

namespace detail {

inline void reduce_model(operation_name name, std::span<const ddp_parameter> parameters,
                         std::span<std::byte> ddp_parameter::* part, reduce_op op, std::size_t bucket_bytes,
                         const process_group& group, std::source_location where) {
  operation call = reduction_call<float>(name, movement::to_all, 0, -1, op, where);
  call.type_name = {};
  // Elements of one type are reduced together; all ranks sort equal lists alike.
  std::vector<std::size_t> order;
  order.reserve(parameters.size());
  for (const auto& parameter : parameters) {
    call.type_hash = fnv1a(parameter.name, call.type_hash);
    order.push_back(order.size());
  }
  std::sort(order.begin(), order.end(), [&](std::size_t left, std::size_t right) {
    return std::pair(parameters[left].type, left) < std::pair(parameters[right].type, right);
  });
  std::vector<coalesced_piece> pieces;
  pieces.reserve(order.size());
  for (const std::size_t index : order) {
    pieces.push_back({parameters[index].type, parameters[index].*part});
  }
  for (const auto& parameter : parameters) {
    const auto bytes = parameter.*part;
    if (parameter.on_device) {
      running_call(group, call).require(false, [&] {
        return "parameter \"" + parameter.name + "\" is on a device; reduce it there, all_reduce(device_span, stream)";
      });
    }
    if (bytes.data() == nullptr && !bytes.empty()) {
      running_call(group, call).require(false, [&] {
        return "parameter \"" + parameter.name + "\": " + std::to_string(bytes.size() / size_of(parameter.type)) +
               " elements are at address 0";
      });
    }
  }
  all_reduce_pieces(call, pieces, bucket_bytes, group, [&] {
    std::vector<std::string> texts;
    texts.reserve(parameters.size());
    for (const auto& parameter : parameters) {
      texts.push_back('"' + parameter.name + "\" (" +
                      std::to_string((parameter.*part).size() / size_of(parameter.type)) + " x " +
                      std::string(to_string(parameter.type)) + ')');
    }
    return texts;
  });
}

}  // namespace detail

/// Reduces the gradients of all parameters, of whatever types, in place on every rank, in few operations: grouped by
/// type, packed into buckets of up to `bucket_bytes` (a larger gradient goes by itself). Each gradient gets the bits
/// that an `all_reduce` of it alone would give.
///
/// All ranks bring the same parameters in the same order, with the same `bucket_bytes`; otherwise every rank throws
/// mismatch_error naming the first parameter that differs, and no data moves. Throws usage_error where a parameter's
/// type does not have that reduction or its memory is at address 0 (peer_error on the other ranks). One call after
/// backward: nothing overlaps, unlike in `distributed_data_parallel`. (MMEngine's `all_reduce_params`, which takes the
/// tensors to reduce themselves.)
inline void all_reduce_params(std::span<const ddp_parameter> parameters, reduce_op op = reduce_op::average,
                              std::size_t bucket_bytes = std::size_t{25} << 20, const process_group& group = world(),
                              std::source_location where = std::source_location::current()) {
  detail::reduce_model("all_reduce_params", parameters, &ddp_parameter::gradient, op, bucket_bytes, group, where);
}

/// The same for the parameters' values: averages models that were trained apart for a while.
inline void all_reduce_param_values(std::span<const ddp_parameter> parameters, reduce_op op = reduce_op::average,
                                    std::size_t bucket_bytes = std::size_t{25} << 20,
                                    const process_group& group = world(),
                                    std::source_location where = std::source_location::current()) {
  detail::reduce_model("all_reduce_param_values", parameters, &ddp_parameter::value, op, bucket_bytes, group, where);
}

/// Starts `all_reduce_params`; the gradients must stay, untouched, until the work is done.
inline work<void> all_reduce_params_async(std::vector<ddp_parameter> parameters, reduce_op op = reduce_op::average,
                                          std::size_t bucket_bytes = std::size_t{25} << 20,
                                          const process_group& group = world(),
                                          std::source_location where = std::source_location::current()) {
  return detail::start("all_reduce_params", group, where,
                       [parameters = std::move(parameters), op, bucket_bytes, group, where] {
                         all_reduce_params(parameters, op, bucket_bytes, group, where);
                       });
}

/// Starts `all_reduce_param_values`; the values must stay, untouched, until the work is done.
inline work<void> all_reduce_param_values_async(std::vector<ddp_parameter> parameters,
                                                reduce_op op = reduce_op::average,
                                                std::size_t bucket_bytes = std::size_t{25} << 20,
                                                const process_group& group = world(),
                                                std::source_location where = std::source_location::current()) {
  return detail::start("all_reduce_param_values", group, where,
                       [parameters = std::move(parameters), op, bucket_bytes, group, where] {
                         all_reduce_param_values(parameters, op, bucket_bytes, group, where);
                       });
}

}  // namespace hfcomm
