// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <hfcomm/core/config.hpp>
#include <hfcomm/torch/collectives.hpp>
#include <hfcomm/torch/collectives_async.hpp>
#include <hfcomm/torch/detail/tensor_collectives.hpp>
#include <hfcomm/torch/detail/tensor_memory.hpp>
#include <hfcomm/torch/detail/tensor_operation.hpp>

namespace hfcomm::torch {

namespace detail {

/// Returns a tensor for `ranks` tensors like `data`. An unusable `data` is returned as it is, to be refused.
[[nodiscard]] HFCOMM_INLINE at::Tensor table_for(const at::Tensor& data, int ranks) {
  if (!memory_problem(data).empty()) {
    return data;
  }
  auto sizes = data.sizes().vec();
  sizes.insert(sizes.begin(), ranks);
  return at::empty(sizes, data.options().requires_grad(false));
}

/// Returns the tensors in such a tensor, which autograd takes for independent ones; none for an undefined one. They are
/// inference tensors where the table is one, whatever the mode of the thread.
[[nodiscard]] HFCOMM_INLINE std::vector<at::Tensor> tensors_in(const at::Tensor& table) {
  const c10::InferenceMode mode(table.defined() && table.is_inference());
  std::vector<at::Tensor> tensors;
  for (const at::Tensor& row : table.defined() ? table.unbind(0) : tensors) {
    const auto drop = [memory = table](void* /*address*/) mutable { memory.reset(); };
    tensors.push_back(at::from_blob(row.data_ptr(), row.sizes(), row.strides(), drop, table.options(), table.device()));
  }
  return tensors;
}

}  // namespace detail

HFCOMM_INLINE void all_reduce(const at::Tensor& data, hfcomm::detail::any_reduction op, hfcomm::detail::or_group group,
                              std::source_location where) {
  detail::perform<detail::all_reduce_of>({.in = data, .out = data, .op = op}, op.in(group, where), where);
}

HFCOMM_INLINE void reduce(const at::Tensor& data, int root, hfcomm::detail::any_reduction op,
                          hfcomm::detail::or_group group, std::source_location where) {
  detail::perform<detail::reduce_of>({.in = data, .out = data, .root = root, .op = op}, op.in(group, where), where);
}

HFCOMM_INLINE void broadcast(const at::Tensor& data, hfcomm::detail::optional_root root, hfcomm::detail::or_group group,
                             std::source_location where) {
  detail::perform<detail::broadcast_of>({.in = data, .out = data, .root = root}, root.in(group, where), where);
}

HFCOMM_INLINE void all_gather(const at::Tensor& in, const at::Tensor& out, const process_group& group,
                              std::source_location where) {
  detail::perform<detail::all_gather_of>({.in = in, .out = out}, group, where);
}

HFCOMM_INLINE void all_gather(const at::Tensor& in, const at::Tensor& out,
                              const hfcomm::detail::counts_of_ranks& counts, const process_group& group,
                              std::source_location where) {
  detail::perform<detail::all_gather_of>({.in = in, .out = out, .rows = counts}, group, where);
}

HFCOMM_INLINE std::vector<at::Tensor> all_gather(const at::Tensor& data, const process_group& group,
                                                 std::source_location where) {
  const at::Tensor table = detail::table_for(data, group.size());
  detail::perform<detail::all_gather_of>({.in = data, .out = table}, group, where);
  return detail::tensors_in(table);
}

HFCOMM_INLINE void gather(const at::Tensor& in, const at::Tensor& out, hfcomm::detail::optional_root root,
                          hfcomm::detail::or_group group, std::source_location where) {
  detail::perform<detail::gather_of>({.in = in, .out = out, .root = root}, root.in(group, where), where);
}

HFCOMM_INLINE void gather(const at::Tensor& in, const at::Tensor& out, const hfcomm::detail::counts_of_ranks& counts,
                          hfcomm::detail::optional_root root, hfcomm::detail::or_group group,
                          std::source_location where) {
  detail::perform<detail::gather_of>({.in = in, .out = out, .root = root, .rows = counts}, root.in(group, where),
                                     where);
}

HFCOMM_INLINE std::vector<at::Tensor> gather(const at::Tensor& data, hfcomm::detail::optional_root root,
                                             hfcomm::detail::or_group group, std::source_location where) {
  const process_group& own = root.in(group, where);
  const at::Tensor table = own.rank() == root ? detail::table_for(data, own.size()) : at::Tensor();
  detail::perform<detail::gather_of>({.in = data, .out = table, .root = root}, own, where);
  return detail::tensors_in(table);
}

HFCOMM_INLINE void scatter(const at::Tensor& in, const at::Tensor& out, hfcomm::detail::optional_root root,
                           hfcomm::detail::or_group group, std::source_location where) {
  detail::perform<detail::scatter_of>({.in = in, .out = out, .root = root}, root.in(group, where), where);
}

HFCOMM_INLINE void scatter(const at::Tensor& in, const at::Tensor& out, const hfcomm::detail::counts_of_ranks& counts,
                           hfcomm::detail::optional_root root, hfcomm::detail::or_group group,
                           std::source_location where) {
  detail::perform<detail::scatter_of>({.in = in, .out = out, .root = root, .rows = counts}, root.in(group, where),
                                      where);
}

HFCOMM_INLINE void reduce_scatter(const at::Tensor& in, const at::Tensor& out, hfcomm::detail::any_reduction op,
                                  hfcomm::detail::or_group group, std::source_location where) {
  detail::perform<detail::reduce_scatter_of>({.in = in, .out = out, .op = op}, op.in(group, where), where);
}

HFCOMM_INLINE void reduce_scatter(const at::Tensor& in, const at::Tensor& out,
                                  const hfcomm::detail::counts_of_ranks& counts, hfcomm::detail::any_reduction op,
                                  hfcomm::detail::or_group group, std::source_location where) {
  detail::perform<detail::reduce_scatter_of>({.in = in, .out = out, .op = op, .rows = counts}, op.in(group, where),
                                             where);
}

HFCOMM_INLINE void all_to_all(const at::Tensor& in, const at::Tensor& out, const process_group& group,
                              std::source_location where) {
  detail::perform<detail::all_to_all_of>({.in = in, .out = out}, group, where);
}

HFCOMM_INLINE void all_to_all(const at::Tensor& in, const hfcomm::detail::counts_of_ranks& in_counts,
                              const at::Tensor& out, const hfcomm::detail::counts_of_ranks& out_counts,
                              const process_group& group, std::source_location where) {
  detail::perform<detail::all_to_all_of>({.in = in, .out = out, .rows = in_counts, .out_rows = out_counts}, group,
                                         where);
}

HFCOMM_INLINE work<void> all_reduce_async(const at::Tensor& data, hfcomm::detail::any_reduction op,
                                          hfcomm::detail::or_group group, std::source_location where) {
  return detail::begin<detail::all_reduce_of>({.in = data, .out = data, .op = op}, op.in(group, where), where);
}

HFCOMM_INLINE work<void> reduce_async(const at::Tensor& data, int root, hfcomm::detail::any_reduction op,
                                      hfcomm::detail::or_group group, std::source_location where) {
  return detail::begin<detail::reduce_of>({.in = data, .out = data, .root = root, .op = op}, op.in(group, where),
                                          where);
}

HFCOMM_INLINE work<void> broadcast_async(const at::Tensor& data, hfcomm::detail::optional_root root,
                                         hfcomm::detail::or_group group, std::source_location where) {
  return detail::begin<detail::broadcast_of>({.in = data, .out = data, .root = root}, root.in(group, where), where);
}

HFCOMM_INLINE work<void> all_gather_async(const at::Tensor& in, const at::Tensor& out, const process_group& group,
                                          std::source_location where) {
  return detail::begin<detail::all_gather_of>({.in = in, .out = out}, group, where);
}

HFCOMM_INLINE work<void> all_gather_async(const at::Tensor& in, const at::Tensor& out,
                                          const hfcomm::detail::counts_of_ranks& counts, const process_group& group,
                                          std::source_location where) {
  return detail::begin<detail::all_gather_of>({.in = in, .out = out, .rows = counts}, group, where);
}

HFCOMM_INLINE work<std::vector<at::Tensor>> all_gather_async(const at::Tensor& data, const process_group& group,
                                                             std::source_location where) {
  const at::Tensor table = detail::table_for(data, group.size());
  return detail::begin<detail::all_gather_of>({.in = data, .out = table}, group, where,
                                              [table] { return detail::tensors_in(table); });
}

HFCOMM_INLINE work<void> gather_async(const at::Tensor& in, const at::Tensor& out, hfcomm::detail::optional_root root,
                                      hfcomm::detail::or_group group, std::source_location where) {
  return detail::begin<detail::gather_of>({.in = in, .out = out, .root = root}, root.in(group, where), where);
}

HFCOMM_INLINE work<void> gather_async(const at::Tensor& in, const at::Tensor& out,
                                      const hfcomm::detail::counts_of_ranks& counts, hfcomm::detail::optional_root root,
                                      hfcomm::detail::or_group group, std::source_location where) {
  return detail::begin<detail::gather_of>({.in = in, .out = out, .root = root, .rows = counts}, root.in(group, where),
                                          where);
}

HFCOMM_INLINE work<std::vector<at::Tensor>> gather_async(const at::Tensor& data, hfcomm::detail::optional_root root,
                                                         hfcomm::detail::or_group group, std::source_location where) {
  const process_group& own = root.in(group, where);
  const at::Tensor table = own.rank() == root ? detail::table_for(data, own.size()) : at::Tensor();
  return detail::begin<detail::gather_of>({.in = data, .out = table, .root = root}, own, where,
                                          [table] { return detail::tensors_in(table); });
}

HFCOMM_INLINE work<void> scatter_async(const at::Tensor& in, const at::Tensor& out, hfcomm::detail::optional_root root,
                                       hfcomm::detail::or_group group, std::source_location where) {
  return detail::begin<detail::scatter_of>({.in = in, .out = out, .root = root}, root.in(group, where), where);
}

HFCOMM_INLINE work<void> scatter_async(const at::Tensor& in, const at::Tensor& out,
                                       const hfcomm::detail::counts_of_ranks& counts,
                                       hfcomm::detail::optional_root root, hfcomm::detail::or_group group,
                                       std::source_location where) {
  return detail::begin<detail::scatter_of>({.in = in, .out = out, .root = root, .rows = counts}, root.in(group, where),
                                           where);
}

HFCOMM_INLINE work<void> reduce_scatter_async(const at::Tensor& in, const at::Tensor& out,
                                              hfcomm::detail::any_reduction op, hfcomm::detail::or_group group,
                                              std::source_location where) {
  return detail::begin<detail::reduce_scatter_of>({.in = in, .out = out, .op = op}, op.in(group, where), where);
}

HFCOMM_INLINE work<void> reduce_scatter_async(const at::Tensor& in, const at::Tensor& out,
                                              const hfcomm::detail::counts_of_ranks& counts,
                                              hfcomm::detail::any_reduction op, hfcomm::detail::or_group group,
                                              std::source_location where) {
  return detail::begin<detail::reduce_scatter_of>({.in = in, .out = out, .op = op, .rows = counts}, op.in(group, where),
                                                  where);
}

HFCOMM_INLINE work<void> all_to_all_async(const at::Tensor& in, const at::Tensor& out, const process_group& group,
                                          std::source_location where) {
  return detail::begin<detail::all_to_all_of>({.in = in, .out = out}, group, where);
}

HFCOMM_INLINE work<void> all_to_all_async(const at::Tensor& in, const hfcomm::detail::counts_of_ranks& in_counts,
                                          const at::Tensor& out, const hfcomm::detail::counts_of_ranks& out_counts,
                                          const process_group& group, std::source_location where) {
  return detail::begin<detail::all_to_all_of>({.in = in, .out = out, .rows = in_counts, .out_rows = out_counts}, group,
                                              where);
}

}  // namespace hfcomm::torch
