// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/device/detail/device_dictionary.hpp>

namespace hfcomm {

/// Reduces the numbers of equal keys, in place on the root; the other ranks' numbers stay as they are. One NCCL launch
/// reduces all numbers, also of different types. (detectron2's `reduce_dict`.)
///
/// Before that, the ranks compare their keys and types over the host plane, so the host waits for all ranks. Throws
/// mismatch_error, which names the keys that a rank lacks. The reduction runs on the stream.
template <device_dictionary Map>
void reduce_dict(const Map& values, stream_ref stream,
                 detail::average_or<detail::any_reduction, true> op = reduce_op::average,
                 detail::optional_root root = 0, detail::or_group group = {}, call_site where = call_site::current()) {
  detail::reduce_device_dictionary("device reduce_dict", values, stream, op, op.root_or(root),
                                   op.in(root, group, where), where);
}

/// The same, with the results on every rank.
template <device_dictionary Map>
void all_reduce_dict(const Map& values, stream_ref stream,
                     detail::average_or<detail::any_reduction> op = reduce_op::average, detail::or_group group = {},
                     call_site where = call_site::current()) {
  detail::reduce_device_dictionary("device all_reduce_dict", values, stream, op, std::nullopt, op.in(group, where),
                                   where);
}

}  // namespace hfcomm
