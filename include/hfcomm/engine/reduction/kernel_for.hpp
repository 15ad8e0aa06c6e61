// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/core/config.hpp>
#include <hfcomm/engine/reduction/kernel.hpp>

/// The table of kernels, for elements whose type is known only at run time. In the header-only way, a file that
/// includes this compiles the kernels of all types.
namespace hfcomm::detail {

/// Returns the kernel of an element type; nullptr for `none` and for values outside the enum.
[[nodiscard]] reduction_kernel kernel_for(element_type type) noexcept;

}  // namespace hfcomm::detail

#if !defined(HFCOMM_COMPILED)
#include <hfcomm/engine/reduction/detail/kernel_for-inl.hpp>
#endif
