// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/collectives/detail/prefix.hpp>
#include <hfcomm/core/config.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE void scan_by_kernel(operation&& call, const const_elements& in, const elements& out, int rows,
                                  std::span<const std::byte> identity, const process_group& group) {
  running_call running(group, call);
  running.require(!needs_floating_point(call.op),
                  [&] { return "a scan has no " + std::string(to_string(call.op)) + ": scan the sum"; });
  check_all_reduce(running, in, out);
  std::vector<const std::byte*> inputs(static_cast<std::size_t>(rows));
  const auto reduce_chunk = [&](std::size_t offset, std::size_t bytes, std::span<const std::byte> table) {
    std::byte* const to = out.data + offset;
    if (rows == 0) {
      for (std::size_t begin = 0; begin < bytes; begin += identity.size()) {
        std::memcpy(to + begin, identity.data(), identity.size());
      }
    } else if (bytes != 0) {
      for (std::size_t row = 0; row < inputs.size(); ++row) {
        inputs[row] = table.data() + row * bytes;
      }
      run_kernel(call.kernel, call.op, inputs, to, bytes / in.width, {});
    }
  };
  fold_checked_chunks(running, call, in, rows, reduce_chunk);
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
