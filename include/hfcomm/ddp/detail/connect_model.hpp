// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <source_location>
#include <span>
#include <string>

#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/ddp/ddp_options.hpp>
#include <hfcomm/ddp/detail/chunk_ring.hpp>
#include <hfcomm/ddp/detail/registered_model.hpp>
#include <hfcomm/device/detail/device_call.hpp>
#include <hfcomm/group/detail/running_call.hpp>

namespace hfcomm::detail {

/// Describes why a model cannot be reduced on the host; empty: it can.
inline std::string staging_problem(const registered_model& model, device_copies& copies) {
  const auto problem = [&](const char* what, const std::string& name, std::span<const std::byte> bytes) {
    std::string found = copies.problem_of({bytes.data(), bytes.size()});
    return found.empty() ? found : concat({what, " \"", name, "\": ", found});
  };
  for (const auto& one : model.parameters()) {
    const std::string value = problem("the values of parameter", one.name, one.value);
    std::string found = value.empty() ? problem("the gradient of parameter", one.name, one.gradient) : value;
    if (!found.empty()) {
      return found;
    }
    if (one.kernel == nullptr) {
      return concat({"parameter \"", one.name, "\" has no kernel; make it with named_parameter"});
    }
  }
  for (const auto& one : model.buffers()) {
    if (std::string found = one.on_device ? problem("buffer", one.name, one.bytes) : std::string(); !found.empty()) {
      return found;
    }
  }
  return {};
}

/// Returns the ring through which a model on the current device is shared and averaged; null in a group of one. Throws
/// usage_error for options or memory that host_reduce does not take, and engine_error where CUDA fails; the other ranks
/// throw peer_error. Collective.
inline std::shared_ptr<chunk_ring> make_chunk_ring(const registered_model& model, const ddp_options& options,
                                                   const process_group& group, std::source_location where) {
  operation call = buffer_call<std::byte>("distributed_data_parallel", movement::none, 0, -1, where);
  running_call running(group, call);
  running.require(!options.hook || group.size() == 1, [] {
    return "host_reduce takes no hook: a hook averages whole buckets, of which the host has only chunks. Train without "
           "host_reduce, or keep the gradients in host memory";
  });
  std::shared_ptr<chunk_ring> ring;
  if (group.size() != 1) {
    std::size_t values = 0;
    std::size_t buffers = 0;
    for (const auto& one : model.parameters()) {
      values += one.value.size();
    }
    for (const auto& one : model.buffers()) {
      buffers += one.on_device ? one.bytes.size() : 0;
    }
    ring = running.attempt("it cannot prepare host_reduce: ",
                           [&] { return std::make_shared<chunk_ring>(group, std::max(values, buffers), where); });
    const std::string problem = staging_problem(model, ring->copies());
    running.require(problem.empty(), [&] { return std::string(problem); });
  }
  running.exchange_nothing();
  return ring;
}

/// Prepares a group for a model: with host_reduce it returns the ring, otherwise it connects the group's devices. Does
/// nothing for a model in host memory. Collective.
inline std::shared_ptr<chunk_ring> connect_model(const registered_model& model, const ddp_options& options,
                                                 const process_group& group, std::source_location where) {
  if (!model.is_on_device()) {
    return nullptr;
  }
  auto ring = options.host_reduce ? make_chunk_ring(model, options, group, where) : nullptr;
  if (ring == nullptr) {
    connect_device_once(group, where);
  }
  return ring;
}

}  // namespace hfcomm::detail
