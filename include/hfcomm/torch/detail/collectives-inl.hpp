// SPDX-License-Identifier: MIT
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <utility>
#include <vector>

#include <hfcomm/collectives/detail/buffer_collectives.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/torch/collectives.hpp>
#include <hfcomm/torch/detail/tensor_memory.hpp>

namespace hfcomm::torch {

namespace detail {

using engines::movement;

/// An operation on elements in memory, from `in` to `out`.
using buffer_operation = void (*)(engines::operation&&, const hfcomm::detail::const_elements&,
                                  const hfcomm::detail::elements&, const process_group&);

/// Performs an operation from one tensor to another.
HFCOMM_INLINE void perform(buffer_operation perform, engines::operation call, const at::Tensor& in,
                           const at::Tensor& out, const process_group& group) {
  require_tensors(call, {&in, &out}, group);
  const tensor_memory from(in);
  const tensor_memory to(out);
  perform(std::move(call), from.elements(), to.elements(), group);
  to.finish_writing();
}

/// Performs an operation in place. Only where this rank `gets_result` does it write.
HFCOMM_INLINE void perform(buffer_operation perform, engines::operation call, const at::Tensor& data,
                           const process_group& group, bool gets_result = true) {
  require_tensors(call, {&data}, group);
  const tensor_memory memory(data);
  perform(std::move(call), memory.elements(), memory.elements(), group);
  if (gets_result) {
    memory.finish_writing();
  }
}

/// Returns a tensor for `ranks` tensors like `data`.
HFCOMM_INLINE at::Tensor table_for(const at::Tensor& data, int ranks) {
  auto sizes = data.sizes().vec();
  sizes.insert(sizes.begin(), ranks);
  return at::empty(sizes, data.options().requires_grad(false));
}

/// Returns the parts of a table, one for each rank: tensors in its memory that autograd takes for independent ones.
HFCOMM_INLINE std::vector<at::Tensor> rows_of(const at::Tensor& table) {
  std::vector<at::Tensor> rows;
  for (const at::Tensor& row : table.unbind(0)) {
    rows.push_back(at::from_blob(
        row.data_ptr(), row.sizes(), [memory = table](void* /*address*/) mutable { memory.reset(); }, table.options()));
  }
  return rows;
}

}  // namespace detail

HFCOMM_INLINE void all_reduce(const at::Tensor& data, reduce_op op, const process_group& group,
                              std::source_location where) {
  detail::perform(hfcomm::detail::all_reduce_buffer,
                  detail::tensor_reduction("all_reduce", engines::movement::to_all, data, -1, op, where), data, group);
}

HFCOMM_INLINE void reduce(const at::Tensor& data, int root, reduce_op op, const process_group& group,
                          std::source_location where) {
  detail::perform(hfcomm::detail::reduce_buffer,
                  detail::tensor_reduction("reduce", engines::movement::to_root, data, root, op, where), data, group,
                  group.rank() == root);
}

HFCOMM_INLINE void broadcast(const at::Tensor& data, int root, const process_group& group, std::source_location where) {
  auto call = detail::tensor_call("broadcast", engines::movement::from_root, data, root, where);
  detail::require_tensors(call, {&data}, group);
  const detail::tensor_memory memory(data);
  hfcomm::detail::broadcast_buffer(std::move(call), memory.elements(), group);
  if (group.rank() != root) {
    memory.finish_writing();
  }
}

HFCOMM_INLINE void all_gather(const at::Tensor& in, const at::Tensor& out, const process_group& group,
                              std::source_location where) {
  detail::perform(hfcomm::detail::all_gather_buffer,
                  detail::tensor_call("all_gather", engines::movement::to_all, in, -1, where), in, out, group);
}

HFCOMM_INLINE std::vector<at::Tensor> all_gather(const at::Tensor& data, const process_group& group,
                                                 std::source_location where) {
  auto call = detail::tensor_call("all_gather", engines::movement::to_all, data, -1, where);
  detail::require_tensors(call, {&data}, group);
  const at::Tensor table = detail::table_for(data, group.size());
  all_gather(data, table, group, where);
  return detail::rows_of(table);
}

HFCOMM_INLINE void gather(const at::Tensor& in, const at::Tensor& out, int root, const process_group& group,
                          std::source_location where) {
  const at::Tensor nothing = at::empty({0}, at::kByte);
  auto call = detail::tensor_call("gather", engines::movement::to_root, in, root, where);
  if (group.rank() == root) {
    detail::perform(hfcomm::detail::gather_buffer, std::move(call), in, out, group);
  } else {
    detail::require_tensors(call, {&in}, group);
    hfcomm::detail::gather_buffer(std::move(call), detail::tensor_memory(in).elements(),
                                  detail::tensor_memory(nothing).elements(), group);
  }
}

HFCOMM_INLINE std::vector<at::Tensor> gather(const at::Tensor& data, int root, const process_group& group,
                                             std::source_location where) {
  auto call = detail::tensor_call("gather", engines::movement::to_root, data, root, where);
  detail::require_tensors(call, {&data}, group);
  const at::Tensor table = detail::table_for(data, group.rank() == root ? group.size() : 0);
  gather(data, table, root, group, where);
  return detail::rows_of(table);
}

HFCOMM_INLINE void scatter(const at::Tensor& in, const at::Tensor& out, int root, const process_group& group,
                           std::source_location where) {
  auto call = detail::tensor_call("scatter", engines::movement::from_root, out, root, where);
  if (group.rank() == root) {
    detail::perform(hfcomm::detail::scatter_buffer, std::move(call), in, out, group);
  } else {
    detail::perform(hfcomm::detail::scatter_buffer, std::move(call), out, group);
  }
}

HFCOMM_INLINE void reduce_scatter(const at::Tensor& in, const at::Tensor& out, reduce_op op, const process_group& group,
                                  std::source_location where) {
  detail::perform(hfcomm::detail::reduce_scatter_buffer,
                  detail::tensor_reduction("reduce_scatter", engines::movement::to_all, in, -1, op, where), in, out,
                  group);
}

HFCOMM_INLINE void all_to_all(const at::Tensor& in, const at::Tensor& out, const process_group& group,
                              std::source_location where) {
  auto call = detail::tensor_call("all_to_all", engines::movement::to_all, in, -1, where);
  call.bytes /= static_cast<std::uint64_t>(group.size());  // those of one part
  detail::perform(hfcomm::detail::all_to_all_buffer, std::move(call), in, out, group);
}

}  // namespace hfcomm::torch
