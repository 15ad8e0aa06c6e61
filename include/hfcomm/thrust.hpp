// SPDX-License-Identifier: MIT
#pragma once

/// thrust::device_vector as a device range: device operations take it as it is. For .cu files, as Thrust is.

#include <thrust/device_vector.h>

#include <hfcomm/core/device_span.hpp>

namespace hfcomm {

template <class T, class Allocator>
inline constexpr bool enable_device_range<thrust::device_vector<T, Allocator>> = true;

}  // namespace hfcomm
