// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <utility>
#include <vector>

#include <hfcomm/call/argument_checks.hpp>
#include <hfcomm/call/async.hpp>
#include <hfcomm/call/uneven_parts.hpp>
#include <hfcomm/collectives/detail/collect_parts.hpp>
#include <hfcomm/collectives/received_parts.hpp>
#include <hfcomm/core/hash.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/group/work.hpp>
#include <hfcomm/group/work_coroutine.hpp>

/// Sums of sparse tensors.
namespace hfcomm::torch_backend_detail {

/// Throws c10::Error unless `tensor` is a sparse tensor in host memory.
inline void require_sparse(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.layout() == at::kSparse, "hfcomm: the tensor has the layout ", tensor.layout(),
              "; of sparse ones, only those of coordinates (COO) are reduced");
  TORCH_CHECK(tensor.sparse_dim() > 0, "hfcomm: the tensor has no sparse dimension");
  TORCH_CHECK(tensor.device().is_cpu(), "hfcomm: the tensor is on the device ", tensor.device().str(),
              "; this backend moves tensors in host memory (CPU) only");
}

/// Returns a number that differs where types or sizes do.
inline std::uint64_t shape_hash(const at::Tensor& tensor) {
  auto hash = hfcomm::detail::mix(static_cast<std::uint64_t>(tensor.scalar_type()),
                                  static_cast<std::uint64_t>(tensor.sparse_dim()));
  for (const std::int64_t size : tensor.sizes()) {
    hash = hfcomm::detail::mix(hash, static_cast<std::uint64_t>(size));
  }
  return hash;
}

/// Returns the bytes of a contiguous tensor.
inline std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

/// Returns the entries of a coalesced tensor: all indices, then all values.
inline std::vector<std::byte> sparse_entries(const at::Tensor& tensor) {
  const at::Tensor indices = tensor.indices().contiguous();
  const at::Tensor values = tensor.values().contiguous();
  std::vector<std::byte> entries(indices.nbytes() + values.nbytes());
  const auto end = std::copy_n(bytes_of(indices).data(), indices.nbytes(), entries.begin());
  std::copy_n(bytes_of(values).data(), values.nbytes(), end);
  return entries;
}

/// Returns the entries of one rank as a tensor like `mine`.
inline at::Tensor sparse_part(const at::Tensor& mine, std::span<const std::byte> entries) {
  auto index_sizes = mine.indices().sizes().vec();
  auto value_sizes = mine.values().sizes().vec();
  std::int64_t bytes_of_value = mine.values().itemsize();
  for (std::size_t dimension = 1; dimension < value_sizes.size(); ++dimension) {
    bytes_of_value *= value_sizes[dimension];
  }
  const std::int64_t bytes_of_index = mine.sparse_dim() * std::int64_t{sizeof(std::int64_t)};
  index_sizes[1] = static_cast<std::int64_t>(entries.size()) / (bytes_of_index + bytes_of_value);
  value_sizes[0] = index_sizes[1];
  const at::Tensor indices = at::empty(index_sizes, mine.indices().options());
  const at::Tensor values = at::empty(value_sizes, mine.values().options());
  std::copy_n(entries.data(), indices.nbytes(), bytes_of(indices).data());
  std::copy_n(entries.data() + indices.nbytes(), values.nbytes(), bytes_of(values).data());
  return at::sparse_coo_tensor(indices, values, mine.sizes());
}

/// Starts to gather the entries of all ranks, which must stay until the work is done.
inline work<received_parts<std::byte>> gather_entries(std::span<const std::byte> entries, const process_group& group,
                                                      std::source_location where) {
  const hfcomm::detail::const_elements in{entries.data(), entries.size(), 1};
  const auto call =
      hfcomm::detail::uneven_call<std::byte>("sparse all_reduce", engines::movement::to_all, entries.size(), -1, where);
  const auto collect = [in, begun = engines::operation(call)](const process_group& running,
                                                              std::source_location /*where*/) mutable {
    return hfcomm::detail::received_from_all<std::byte>(std::move(begun), in, running);
  };
  return hfcomm::detail::start_checked(
      call, [in](hfcomm::detail::checked_call& running) { hfcomm::detail::check_contribution(running, in); }, collect,
      group);
}

/// Returns the type in which tensors of a type are added up. LibTorch adds up no sparse ones of 16 bits, nor bools.
inline at::ScalarType type_of_sum(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
    case at::kBFloat16: return at::kFloat;
    case at::kBool: return at::kInt;
    default: return type;
  }
}

/// Returns a sparse tensor with its entries as another type.
inline at::Tensor with_value_type(const at::Tensor& tensor, at::ScalarType type) {
  return at::sparse_coo_tensor(tensor._indices(), tensor._values().to(type), tensor.sizes());
}

/// Starts to add up the ranks' tensors, which are of one type and size (mismatch_error otherwise). Takes memory for the
/// entries of all ranks. Sums of 16-bit floats are rounded once; one of bools is whether any is true.
inline work<at::Tensor> sum_of_sparse(at::Tensor mine, process_group group, std::source_location where) {
  const at::ScalarType type = mine.scalar_type();
  mine = with_value_type(mine, type_of_sum(type)).coalesce();
  const auto entries = sparse_entries(mine);
  // Two floats and one double are equally many bytes: the tag keeps them apart.
  const auto tagged = group.with_tag(hfcomm::detail::mix(shape_hash(mine), static_cast<std::uint64_t>(type)));
  const received_parts<std::byte> all = co_await gather_entries(entries, tagged, where);
  at::Tensor sum = sparse_part(mine, all.part(0));
  for (int rank = 1; rank < group.size(); ++rank) {
    sum = sum + sparse_part(mine, all.part(rank));
  }
  co_return with_value_type(sum.coalesce(), type).coalesce();
}

}  // namespace hfcomm::torch_backend_detail
