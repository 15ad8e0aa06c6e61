// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <hfcomm/collectives/detail/dictionary_message.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/plain_list.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE std::span<const std::byte> structure_of(std::span<const std::byte> message) {
  std::uint64_t size = 0;
  if (message.size() < dictionary_header_bytes) {
    throw_error<decode_error>({"it is cut off"});
  }
  std::memcpy(&size, message.data(), sizeof(size));
  if (size > message.size() - dictionary_header_bytes) {
    throw_error<decode_error>({"its keys are cut off"});
  }
  return message.subspan(dictionary_header_bytes, static_cast<std::size_t>(size));
}

HFCOMM_INLINE dictionary_layout::~dictionary_layout() = default;

HFCOMM_INLINE void dictionary_layout::add_leaf(std::span<const std::byte> path, leaf_kind kind) {
  structure_.insert(structure_.end(), path.begin(), path.end());
  structure_.push_back(static_cast<std::byte>(kind));
  ++counts_[static_cast<std::size_t>(kind)];
}

HFCOMM_INLINE void dictionary_layout::set_offsets() {
  std::size_t end = (dictionary_header_bytes + structure_.size() + 7) / 8 * 8;
  for (std::size_t kind = 0; kind < leaf_kinds; ++kind) {
    offsets_[kind] = end;
    end += (counts_[kind] * size_of(static_cast<leaf_kind>(kind)) + 7) / 8 * 8;
  }
  message_bytes_ = end;
}

HFCOMM_INLINE void dictionary_layout::write_structure(std::vector<std::byte>& message, double factor) const {
  message.assign(message_bytes_, {});
  const std::uint64_t size = structure_.size();
  std::memcpy(message.data(), &size, sizeof(size));
  std::memcpy(message.data() + sizeof(size), &factor, sizeof(factor));
  std::copy(structure_.begin(), structure_.end(), message.begin() + dictionary_header_bytes);
}

HFCOMM_INLINE std::vector<std::byte> dictionary_layout::reduce_values(
    std::span<const std::vector<std::byte>> messages, reduce_kind op,
    reduction_kernel (*kernel_of)(leaf_kind) noexcept) const {
  plain_list<const std::byte*> inputs(messages.size());
  plain_list<double> factors(messages.size());
  for (std::size_t rank = 0; rank < messages.size(); ++rank) {
    std::memcpy(&factors[rank], messages[rank].data() + sizeof(std::uint64_t), sizeof(double));
  }
  std::vector<std::byte> reduced(message_bytes_);
  for (std::size_t index = 0; index < leaf_kinds; ++index) {
    const auto kind = static_cast<leaf_kind>(index);
    if (has(kind)) {
      for (std::size_t rank = 0; rank < messages.size(); ++rank) {
        inputs[rank] = messages[rank].data() + offsets_[index];
      }
      run_kernel(kernel_of(kind), operation_for(kind, op), inputs, reduced.data() + offsets_[index],
                 counts_[index] * elements_in(kind), factors);
    }
  }
  return reduced;
}

}  // namespace hfcomm::detail
