// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/collectives/detail/coalesced_call.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/ddp/all_reduce_params.hpp>
#include <hfcomm/group/detail/running_call.hpp>

namespace hfcomm {

namespace detail {

/// `ddp_parameter::gradient` or `ddp_parameter::value`.
using parameter_part = std::span<std::byte> ddp_parameter::*;

/// Returns that part of all parameters, sorted by type, because elements of one type are reduced together. All ranks
/// sort equal lists equally.
inline std::vector<coalesced_piece> pieces_by_type(std::span<const ddp_parameter> parameters, parameter_part part) {
  std::vector<coalesced_piece> pieces;
  pieces.reserve(parameters.size());
  for (const auto& parameter : parameters) {
    // Behind those of its type that came before it: few types, so this is short.
    const auto place =
        std::upper_bound(pieces.begin(), pieces.end(), parameter.type,
                         [](element_type type, const coalesced_piece& piece) { return type < piece.type; });
    pieces.insert(place, {parameter.type, parameter.*part, parameter.kernel});
  }
  return pieces;
}

/// Describes the first parameter that is on a device, at address 0 or without a kernel; empty where there is none.
inline std::string model_problem(std::span<const ddp_parameter> parameters, parameter_part part, reduce_op op) {
  for (const auto& parameter : parameters) {
    const auto bytes = parameter.*part;
    const std::string name = detail::concat({"parameter \"", parameter.name, '"'});
    if (parameter.on_device) {
      return detail::concat({name, " is on a device; reduce it there, all_reduce(device_span, stream)"});
    }
    if (bytes.data() == nullptr && !bytes.empty()) {
      return detail::concat({name, ": ", bytes.size() / size_of(parameter.type), " elements are at address 0"});
    }
    if (parameter.kernel == nullptr && valid(op.kind(), parameter.type)) {
      return detail::concat({name, " has no kernel; make it with named_parameter"});
    }
  }
  return {};
}

inline std::vector<std::string> describe_parts(std::span<const ddp_parameter> parameters, parameter_part part) {
  std::vector<std::string> texts;
  texts.reserve(parameters.size());
  for (const auto& parameter : parameters) {
    texts.push_back(detail::concat({'"', parameter.name, "\" (", (parameter.*part).size() / size_of(parameter.type),
                                    " x ", to_string(parameter.type), ')'}));
  }
  return texts;
}

inline operation model_call(operation_name name, std::span<const ddp_parameter> parameters, reduce_op op,
                            std::source_location where) {
  operation call = reduction_call_without_kernel<float>(name, movement::to_all, 0, -1, op, where);
  call.type_name = {};
  for (const auto& parameter : parameters) {
    call.type_hash = fnv1a(parameter.name, call.type_hash);
  }
  return call;
}

inline void reduce_model(operation_name name, std::span<const ddp_parameter> parameters, parameter_part part,
                         reduce_op op, std::size_t bucket_bytes, const process_group& group,
                         std::source_location where) {
  operation call = model_call(name, parameters, op, where);
  const auto pieces = pieces_by_type(parameters, part);
  if (const std::string problem = model_problem(parameters, part, op); !problem.empty()) {
    running_call(group, call).refuse(problem);
  }
  all_reduce_pieces(call, pieces, bucket_bytes, group, [&] { return describe_parts(parameters, part); });
}

/// Starts `reduce`, which is reduce_model with that name and part.
inline work<void> start_model(operation_name name, std::vector<ddp_parameter> parameters, parameter_part part,
                              reduce_op op, std::size_t bucket_bytes, const process_group& group,
                              std::source_location where, decltype(&all_reduce_params) reduce) {
  const auto check = [&](checked_call& running) {
    const std::string problem = model_problem(parameters, part, op);
    if (!problem.empty()) {
      running.refuse(problem);
    }
    check_all_reduce_pieces(running, pieces_by_type(parameters, part));
  };
  return start_checked(model_call(name, parameters, op, where), check, reduce, group, std::move(parameters), op,
                       bucket_bytes);
}

}  // namespace detail

HFCOMM_INLINE void all_reduce_params(std::span<const ddp_parameter> parameters,
                                     detail::average_or<detail::any_reduction> op, std::size_t bucket_bytes,
                                     detail::or_group group, std::source_location where) {
  detail::reduce_model("all_reduce_params", parameters, &ddp_parameter::gradient, op, bucket_bytes, op.in(group, where),
                       where);
}

HFCOMM_INLINE void all_reduce_param_values(std::span<const ddp_parameter> parameters,
                                           detail::average_or<detail::any_reduction> op, std::size_t bucket_bytes,
                                           detail::or_group group, std::source_location where) {
  detail::reduce_model("all_reduce_param_values", parameters, &ddp_parameter::value, op, bucket_bytes,
                       op.in(group, where), where);
}

HFCOMM_INLINE work<void> all_reduce_params_async(std::vector<ddp_parameter> parameters,
                                                 detail::average_or<detail::any_reduction> op, std::size_t bucket_bytes,
                                                 detail::or_group group, std::source_location where) {
  return detail::start_model("all_reduce_params", std::move(parameters), &ddp_parameter::gradient, op, bucket_bytes,
                             op.in(group, where), where, all_reduce_params);
}

HFCOMM_INLINE work<void> all_reduce_param_values_async(std::vector<ddp_parameter> parameters,
                                                       detail::average_or<detail::any_reduction> op,
                                                       std::size_t bucket_bytes, detail::or_group group,
                                                       std::source_location where) {
  return detail::start_model("all_reduce_param_values", std::move(parameters), &ddp_parameter::value, op, bucket_bytes,
                             op.in(group, where), where, all_reduce_param_values);
}

}  // namespace hfcomm
