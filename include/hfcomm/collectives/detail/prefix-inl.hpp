// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <hfcomm/collectives/detail/prefix.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/element_type.hpp>
#include <hfcomm/core/float16.hpp>
#include <hfcomm/core/float8.hpp>

namespace hfcomm::detail {

/// Returns `value` with the other sign. An 8-bit float made of an infinity is the largest finite one instead.
template <class T>
[[nodiscard]] T negative(T value) noexcept {
  if constexpr (sizeof(T) == 1 && !std::is_integral_v<T>) {
    return std::bit_cast<T>(static_cast<std::uint8_t>(std::bit_cast<std::uint8_t>(value) ^ 0x80));
  } else {
    return static_cast<T>(-value);
  }
}

/// Returns the identity of a reduction: the result of no values at all.
template <class T>
[[nodiscard]] T identity_of(reduce_kind op) noexcept {
  using limits = std::numeric_limits<T>;
  switch (op) {
    case reduce_kind::product: return T(1);
    case reduce_kind::min: return limits::has_infinity ? limits::infinity() : limits::max();
    case reduce_kind::max: return limits::has_infinity ? negative(limits::infinity()) : limits::lowest();
    case reduce_kind::bit_and:
      if constexpr (limits::is_integer) {
        return static_cast<T>(~T{});
      }
      [[fallthrough]];
    default: return T{};
  }
}

/// Fills memory with elements of that type, each of which is the reduction's identity.
HFCOMM_INLINE void fill_with_identity(element_type type, reduce_kind op, std::span<std::byte> to) {
  // The imaginary part of a complex identity is zero.
  const auto fill = [&]<class T>(std::type_identity<T>, std::size_t parts = 1) {
    const T identity[2] = {identity_of<T>(op), T{}};
    for (std::size_t begin = 0; begin < to.size(); begin += parts * sizeof(T)) {
      std::memcpy(to.data() + begin, identity, parts * sizeof(T));
    }
  };
  switch (type) {
    case element_type::int8: return fill(std::type_identity<std::int8_t>{});
    case element_type::int16: return fill(std::type_identity<std::int16_t>{});
    case element_type::int32: return fill(std::type_identity<std::int32_t>{});
    case element_type::int64: return fill(std::type_identity<std::int64_t>{});
    case element_type::uint8: return fill(std::type_identity<std::uint8_t>{});
    case element_type::uint16: return fill(std::type_identity<std::uint16_t>{});
    case element_type::uint32: return fill(std::type_identity<std::uint32_t>{});
    case element_type::uint64: return fill(std::type_identity<std::uint64_t>{});
    case element_type::float16: return fill(std::type_identity<float16>{});
    case element_type::bfloat16: return fill(std::type_identity<bfloat16>{});
    case element_type::float32: return fill(std::type_identity<float>{});
    case element_type::float64: return fill(std::type_identity<double>{});
    case element_type::float8_e4m3: return fill(std::type_identity<float8_e4m3>{});
    case element_type::float8_e5m2: return fill(std::type_identity<float8_e5m2>{});
    case element_type::complex64: return fill(std::type_identity<float>{}, 2);
    case element_type::complex128: return fill(std::type_identity<double>{}, 2);
    case element_type::none: break;
  }
}

HFCOMM_INLINE void check_scan(checked_call& running, const const_elements& in, const const_elements& out) {
  const reduce_kind op = running.call().op;
  running.require(!needs_floating_point(op),
                  [op] { return concat({"a scan has no ", to_string(op), ": scan the sum"}); });
  check_all_reduce(running, in, out);
}

/// Reduces the elements of the first `rows` ranks into this rank's `out`.
HFCOMM_INLINE void scan_by_kernel(operation& call, const const_elements& in, const elements& out, int rows,
                                  const process_group& group) {
  running_call running(group, call);
  check_scan(running, in, out);
  std::vector<const std::byte*> inputs(static_cast<std::size_t>(rows));
  const auto reduce_chunk = [&](std::size_t offset, std::size_t bytes, std::span<const std::byte> table) {
    std::byte* const to = out.data + offset;
    if (rows == 0) {
      // A logical and has the identity of a product: 1.
      fill_with_identity(call.element, call.op == reduce_kind::logical_and ? reduce_kind::product : call.op,
                         {to, bytes});
    } else if (bytes != 0) {
      for (std::size_t row = 0; row < inputs.size(); ++row) {
        inputs[row] = table.data() + row * bytes;
      }
      run_kernel(call.kernel, call.op, inputs, to, bytes / in.width, {});
    }
  };
  fold_checked_chunks(running, call, in, rows, reduce_chunk);
}

HFCOMM_INLINE void scan_buffer(operation&& call, const const_elements& in, const elements& out,
                               const process_group& group) {
  scan_by_kernel(call, in, out, group.rank() + 1, group);
}

HFCOMM_INLINE void exclusive_scan_buffer(operation&& call, const const_elements& in, const elements& out,
                                         const process_group& group) {
  scan_by_kernel(call, in, out, group.rank(), group);
}

HFCOMM_INLINE void scan_by_fold(operation&& call, const const_elements& in, const elements& out, int rows,
                                chunk_fold fold, const process_group& group) {
  call.element = element_type::none;  // so it does not match a scan by a kernel, which has a type
  running_call running(group, call);
  check_elementwise(running, in, out);
  fold_checked_chunks(running, call, in, rows, fold);
  finish_fold(running, call);
}

}  // namespace hfcomm::detail
