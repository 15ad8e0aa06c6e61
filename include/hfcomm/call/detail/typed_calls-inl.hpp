// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/std_algorithm.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE void object_assembler::receive(int source, std::span<const std::byte> chunk, std::uint64_t /*offset*/,
                                             std::uint64_t total) {
  if (source >= ranks_) {
    return;
  }
  if (chunk.size() == total) {
    finish(source, chunk);
    return;
  }
  const auto index = static_cast<std::size_t>(source);
  partial_.resize(std::max(partial_.size(), index + 1));
  partial_[index].reserve(total);
  partial_[index].insert(partial_[index].end(), chunk.begin(), chunk.end());
  if (partial_[index].size() == total) {
    finish(source, std::exchange(partial_[index], {}));
  }
}

HFCOMM_INLINE void object_assembler::finish(int source, std::span<const std::byte> bytes) {
  try {
    decode(source, bytes);
  } catch (const decode_error& problem) {
    throw_error<decode_error>(running_.context(), {"the object from rank ", source, ": ", problem.detail()});
  }
}

}  // namespace hfcomm::detail
