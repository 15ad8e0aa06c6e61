// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <source_location>

#include <hfcomm/device/detail/device_dictionary.hpp>

namespace hfcomm {

/// Reduces the numbers of equal keys on the root's device, in place, by one NCCL launch for all of them, of whatever
/// types; elsewhere they stay. The keys and types are compared first, over the host plane, which waits for all ranks:
/// mismatch_error names the keys that a rank lacks. Put on the stream behind that. (detectron2's `reduce_dict`.)
template <device_dictionary Map>
void reduce_dict(const Map& values, stream_ref stream, reduce_op op = reduce_op::average, int root = 0,
                 const process_group& group = world(), std::source_location where = std::source_location::current()) {
  detail::reduce_device_dictionary("device reduce_dict", values, stream, op, root, group, where);
}

/// The same, for every rank.
template <device_dictionary Map>
void all_reduce_dict(const Map& values, stream_ref stream, reduce_op op = reduce_op::average,
                     const process_group& group = world(),
                     std::source_location where = std::source_location::current()) {
  detail::reduce_device_dictionary("device all_reduce_dict", values, stream, op, std::nullopt, group, where);
}

}  // namespace hfcomm
