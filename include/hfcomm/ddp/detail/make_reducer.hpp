// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <memory>
#include <source_location>
#include <span>
#include <utility>

#include <hfcomm/ddp/ddp_options.hpp>
#include <hfcomm/ddp/detail/chunk_ring.hpp>
#include <hfcomm/ddp/detail/device_reducer.hpp>
#include <hfcomm/ddp/detail/host_reducer.hpp>
#include <hfcomm/ddp/detail/reducer.hpp>
#include <hfcomm/ddp/detail/staged_reducer.hpp>
#include <hfcomm/ddp/parameter.hpp>

namespace hfcomm::detail {

/// Counts the passes of a group of one, where every gradient is its own average. For gradients in host memory.
class local_reducer final : public reducer {
 public:
  local_reducer(const process_group& group, std::span<ddp_parameter> parameters, const ddp_options& options)
      : reducer(group, parameters, options, false) {
    make_buckets();
  }

 private:
  void start_bucket(std::size_t index, std::source_location /*where*/) override {
    record_bucket(buckets_[index].bytes, 0);
  }
};

/// Returns the reducer for parameters that are all in host memory, or all on a device. With a `ring` the latter are
/// reduced on the host. Collective. The parameters must outlive it.
inline std::unique_ptr<reducer> make_reducer(const process_group& group, std::span<ddp_parameter> parameters,
                                             const ddp_options& options, std::shared_ptr<chunk_ring> ring,
                                             std::source_location where) {
  if (!parameters.empty() && parameters.front().on_device) {
    if (ring != nullptr) {
      return std::make_unique<staged_reducer>(group, parameters, options, std::move(ring), where);
    }
    return std::make_unique<device_reducer>(group, parameters, options, where);
  }
  if (group.size() == 1) {
    return std::make_unique<local_reducer>(group, parameters, options);
  }
  return std::make_unique<host_reducer>(group, parameters, options, where);
}

}  // namespace hfcomm::detail
