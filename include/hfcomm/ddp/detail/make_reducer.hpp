// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <source_location>
#include <span>

#include <hfcomm/ddp/ddp_options.hpp>
#include <hfcomm/ddp/detail/device_reducer.hpp>
#include <hfcomm/ddp/detail/host_reducer.hpp>
#include <hfcomm/ddp/detail/local_reducer.hpp>
#include <hfcomm/ddp/detail/reducer.hpp>
#include <hfcomm/ddp/parameter.hpp>

namespace hfcomm::detail {

/// Returns the reducer for parameters that are all in host memory, or all on a device. Collective. The parameters must
/// outlive it.
inline std::unique_ptr<reducer> make_reducer(const process_group& group, std::span<ddp_parameter> parameters,
                                             const ddp_options& options, std::source_location where) {
  if (!parameters.empty() && parameters.front().on_device) {
    return std::make_unique<device_reducer>(group, parameters, options, where);
  }
  if (group.size() == 1) {
    return std::make_unique<local_reducer>(group, parameters, options);
  }
  return std::make_unique<host_reducer>(group, parameters, options, where);
}

}  // namespace hfcomm::detail
