// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/ddp/communication_hook.hpp>

namespace hfcomm {

/// Options of `power_sgd`. Equal on all ranks.
struct power_sgd_options {
  std::size_t matrix_rank = 1;  ///< Columns of the two factors: more are more exact, and more bytes. At least 1.
  /// The first pass that compresses. Before it, gradients change too much and are averaged exactly.
  std::uint64_t first_pass = 1000;
  /// A gradient is compressed where its factors have at least this many times fewer elements than itself. At least 1.
  double least_compression = 2;
  bool uses_error_feedback = true;  ///< What compression loses is added to the next pass's gradients. Costs a copy.
  bool warm_start = true;           ///< Begins with the factors of the pass before instead of random ones.
  std::uint64_t seed = 0;           ///< Of the random factors.
};

/// Returns a hook that compresses gradients by PowerSGD (Vogels et al. 2019): a gradient, seen as a matrix with a row
/// for each of the first dimension's indices, is sent as two factors of `matrix_rank` columns. Much less is sent, and
/// the averages are approximations, with the same bits on all ranks.
///
/// Needs the layouts of the parameters, `ddp_parameter::layout`. Parameters without one, with fewer than two
/// dimensions, whose first dimension is not the outermost in memory, or that are too small are averaged exactly.
///
/// For gradients of 32 and 64 bits in host memory. Those of 16 bits are averaged exactly; those on a device are a
/// usage_error. A gradient that is not finite makes all ranks begin anew with it, without feedback. Belongs to one
/// distributed_data_parallel. Throws usage_error where `matrix_rank` is 0, or `least_compression` less than 1.
/// (Semantics of torch's powerSGD_hook.)
[[nodiscard]] communication_hook power_sgd(power_sgd_options options = {}, call_site where = call_site::current());

}  // namespace hfcomm

#if !defined(HFCOMM_COMPILED)
// In the header-only way only files that use it compile it, and the kernels of two element types.
#include <hfcomm/ddp/detail/power_sgd-inl.hpp>
#endif
