// SPDX-License-Identifier: MIT
#pragma once

#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include <hfcomm/collectives/detail/part_list_calls.hpp>
#include <hfcomm/torch_backend/backend.hpp>
#include <hfcomm/torch_backend/backend_collectives.hpp>
#include <hfcomm/torch_backend/reductions.hpp>
#include <hfcomm/torch_backend/tensors.hpp>

/// The collectives of a torch_backend on lists of tensors, one for each rank.
namespace hfcomm {

namespace torch_backend_detail {

/// Returns the operation on parts of different lengths.
inline engines::operation uneven(engines::operation call) {
  call.content = engines::payload::uneven;
  return call;
}

using const_parts = std::vector<const_elements>;
using parts = std::vector<elements>;

/// Returns the rows of the first dimension for each rank: `splits[r]` of them for rank r, equally many where there are
/// no splits. Throws c10::Error where they do not add up.
inline parts split_rows(const host_tensor& data, const std::vector<std::int64_t>& splits, int ranks) {
  TORCH_CHECK(data.tensor().dim() > 0, "hfcomm: a tensor without dimensions cannot be split");
  const std::int64_t rows = data.tensor().size(0);
  std::vector<std::int64_t> counts = splits;
  if (counts.empty()) {
    TORCH_CHECK(rows % ranks == 0, "hfcomm: ", rows, " rows cannot be split equally among ", ranks, " ranks");
    counts.assign(static_cast<std::size_t>(ranks), rows / ranks);
  }
  TORCH_CHECK(counts.size() == static_cast<std::size_t>(ranks), "hfcomm: ", counts.size(), " split sizes for ", ranks,
              " ranks");
  TORCH_CHECK(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) == rows,
              "hfcomm: the split sizes do not add up to the ", rows, " rows of the tensor");
  parts result;
  std::int64_t first = 0;
  for (const std::int64_t count : counts) {
    TORCH_CHECK(count >= 0, "hfcomm: a split size is negative");
    result.push_back(data.rows(first, count));
    first += count;
  }
  return result;
}

/// Returns the elements of all tensors, as bytes, one tensor after another.
inline at::Tensor packed(const host_tensors& tensors) {
  std::vector<at::Tensor> bytes;
  for (const host_tensor& one : tensors) {
    bytes.push_back(at::from_blob(one.memory().data, {static_cast<std::int64_t>(one.bytes())}, at::kByte));
  }
  return bytes.empty() ? at::empty({0}, at::kByte) : at::cat(bytes);
}

/// Throws c10::Error unless the lists have tensors of one type, and each of `whole` as many elements as `ranks` of
/// `pieces`.
inline void require_parts(const std::vector<at::Tensor>& whole, const std::vector<at::Tensor>& pieces, int ranks) {
  TORCH_CHECK(!pieces.empty() && whole.size() == pieces.size(), "hfcomm: lists of ", whole.size(), " and ",
              pieces.size(), " tensors, which have to be equally long and not empty");
  for (std::size_t index = 0; index < pieces.size(); ++index) {
    require_host_memory(whole[index]);
    require_host_memory(pieces[index]);
    TORCH_CHECK(whole[index].scalar_type() == pieces.front().scalar_type() &&
                    pieces[index].scalar_type() == pieces.front().scalar_type(),
                "hfcomm: the tensors of one call have several types");
    TORCH_CHECK(whole[index].numel() == ranks * pieces[index].numel(), "hfcomm: tensor ", index, " has ",
                whole[index].numel(), " elements, which are not ", ranks, " times ", pieces[index].numel());
  }
}

/// Writes what `packed` has returned into tensors of the same types and numbers of elements.
inline void unpack(const at::Tensor& bytes, const std::vector<at::Tensor>& tensors) {
  std::int64_t first = 0;
  for (const at::Tensor& one : tensors) {
    const host_tensor to(one);
    const auto memory = to.memory().bytes();
    std::copy_n(static_cast<const std::byte*>(bytes.data_ptr()) + first, memory.size(), memory.data());
    first += static_cast<std::int64_t>(memory.size());
    to.write_back();
  }
}

/// Throws c10::Error unless the lists have tensors of equal types and numbers of elements, and the outputs can be
/// written.
inline void require_alike(const std::vector<at::Tensor>& outputs, const host_tensors& inputs) {
  TORCH_CHECK(outputs.size() == inputs.size(), "hfcomm: a list of ", outputs.size(), " output tensors for ",
              inputs.size(), " inputs");
  for (std::size_t index = 0; index < outputs.size(); ++index) {
    require_host_memory(outputs[index]);
    require_writable(outputs[index]);
    TORCH_CHECK(outputs[index].scalar_type() == inputs[index].type() &&
                    outputs[index].numel() == inputs[index].tensor().numel(),
                "hfcomm: output ", index, " has another type or number of elements than the input");
  }
}

}  // namespace torch_backend_detail

inline torch_backend::work_ptr torch_backend::allgather(tensor_lists& outputs, tensor_list& inputs,
                                                        const ::c10d::AllgatherOptions& opts) {
  using namespace torch_backend_detail;
  const host_tensor in(only(inputs, "input tensors"));
  const host_tensors out(only(outputs, "lists of output tensors"));
  out.require_type(in.type());
  const auto call = uneven(typed_call("all_gather", movement::to_all, in.type(), in.bytes(), -1, unknown_call_site));
  const auto start =
      start_of(call, hfcomm::detail::check_all_gather_list, hfcomm::detail::all_gather_list, in.memory(), out.parts());
  return begin(::c10d::OpType::ALLGATHER, inputs, outputs.front(), opts.timeout, start, write_back_of(out, in));
}

inline torch_backend::work_ptr torch_backend::allgather_coalesced(tensor_lists& outputs, tensor_list& inputs,
                                                                  const ::c10d::AllgatherOptions& opts) {
  using namespace torch_backend_detail;
  TORCH_CHECK(!inputs.empty(), "hfcomm: the list of input tensors is empty");
  TORCH_CHECK(outputs.size() == static_cast<std::size_t>(getSize()), "hfcomm: ", outputs.size(),
              " lists of output tensors for ", getSize(), " ranks");
  const host_tensors in(inputs);
  tensor_list flat_outputs;
  for (const auto& list : outputs) {
    require_alike(list, in);
    flat_outputs.insert(flat_outputs.end(), list.begin(), list.end());
  }
  const host_tensor mine(packed(in));
  const host_tensor all(at::empty({getSize(), mine.tensor().numel()}, at::kByte));
  const auto call =
      typed_call("all_gather_coalesced", movement::to_all, mine.type(), mine.bytes(), -1, unknown_call_site);
  const auto start =
      start_of(call, hfcomm::detail::check_all_gather, hfcomm::detail::all_gather_buffer, mine.memory(), all.memory());
  return begin(::c10d::OpType::ALLGATHER_COALESCED, inputs, flat_outputs, opts.timeout, start,
               [mine, all, lists = outputs](const backend_work& /*done*/) {
                 for (std::size_t rank = 0; rank < lists.size(); ++rank) {
                   unpack(all.tensor()[static_cast<std::int64_t>(rank)], lists[rank]);
                 }
               });
}

inline torch_backend::work_ptr torch_backend::allgather_into_tensor_coalesced(tensor_list& outputs, tensor_list& inputs,
                                                                              const ::c10d::AllgatherOptions& opts) {
  using namespace torch_backend_detail;
  require_parts(outputs, inputs, getSize());
  require_writable(outputs);
  const host_tensor mine(packed(host_tensors(inputs)));
  const host_tensor all(at::empty({getSize(), mine.tensor().numel()}, at::kByte));
  const auto call =
      typed_call("all_gather_coalesced", movement::to_all, mine.type(), mine.bytes(), -1, unknown_call_site);
  const auto start =
      start_of(call, hfcomm::detail::check_all_gather, hfcomm::detail::all_gather_buffer, mine.memory(), all.memory());
  return begin(::c10d::OpType::ALLGATHER_COALESCED, inputs, outputs, opts.timeout, start,
               [mine, all, outputs](const backend_work& /*done*/) {
                 std::int64_t first = 0;
                 for (const at::Tensor& output : outputs) {
                   const std::int64_t bytes = static_cast<std::int64_t>(output.nbytes()) / all.tensor().size(0);
                   unpack(all.tensor().narrow(1, first, bytes).contiguous(), {output});
                   first += bytes;
                 }
               });
}

inline torch_backend::work_ptr torch_backend::gather(tensor_lists& outputs, tensor_list& inputs,
                                                     const ::c10d::GatherOptions& opts) {
  using namespace torch_backend_detail;
  const host_tensor in(only(inputs, "input tensors"));
  const bool is_root = getRank() == opts.rootRank;
  TORCH_CHECK(is_root || outputs.empty(), "hfcomm: only the root of a gather has output tensors");
  const host_tensors out(is_root ? only(outputs, "lists of output tensors") : tensor_list());
  out.require_type(in.type());
  const auto call = uneven(typed_call("gather", movement::to_root, in.type(), in.bytes(),
                                      static_cast<int>(opts.rootRank), unknown_call_site));
  const auto start =
      start_of(call, hfcomm::detail::check_gather_list, hfcomm::detail::gather_list, in.memory(), out.parts());
  return begin(::c10d::OpType::GATHER, inputs, is_root ? outputs.front() : tensor_list(), opts.timeout, start,
               write_back_of(out, in));
}

inline torch_backend::work_ptr torch_backend::scatter(tensor_list& outputs, tensor_lists& inputs,
                                                      const ::c10d::ScatterOptions& opts) {
  using namespace torch_backend_detail;
  const host_tensor out(only(outputs, "output tensors"));
  const bool is_root = getRank() == opts.rootRank;
  TORCH_CHECK(is_root || inputs.empty(), "hfcomm: only the root of a scatter has input tensors");
  const auto in =
      std::make_shared<const host_tensors>(is_root ? only(inputs, "lists of input tensors") : tensor_list());
  in->require_type(out.type());
  const auto call = uneven(typed_call("scatter", movement::from_root, out.type(), out.bytes(),
                                      static_cast<int>(opts.rootRank), unknown_call_site));
  const auto start =
      start_of(call, hfcomm::detail::check_scatter_list, hfcomm::detail::scatter_list, in->const_parts(), out.memory());
  return begin(::c10d::OpType::SCATTER, is_root ? inputs.front() : tensor_list(), outputs, opts.timeout, start,
               write_back_of(out, in));
}

inline torch_backend::work_ptr torch_backend::reduce_scatter(tensor_list& outputs, tensor_lists& inputs,
                                                             const ::c10d::ReduceScatterOptions& opts) {
  using namespace torch_backend_detail;
  const host_tensor out(only(outputs, "output tensors"));
  const host_tensors in(only(inputs, "lists of input tensors"));
  in.require_type(out.type());
  const auto call =
      reduction_call("reduce_scatter", movement::to_all, out.tensor(), 0, -1, opts.reduceOp, unknown_call_site);
  const auto start = start_of(call, hfcomm::detail::check_reduce_scatter_list, hfcomm::detail::reduce_scatter_list,
                              in.const_parts(), out.memory());
  return begin(::c10d::OpType::REDUCE_SCATTER, inputs.front(), outputs, opts.timeout, start, write_back_of(out, in));
}

inline torch_backend::work_ptr torch_backend::reduce_scatter_tensor_coalesced(
    tensor_list& outputs, tensor_list& inputs, const ::c10d::ReduceScatterOptions& opts) {
  using namespace torch_backend_detail;
  require_parts(inputs, outputs, getSize());
  require_writable(outputs);
  tensor_list by_rank;
  for (int rank = 0; rank < getSize(); ++rank) {
    tensor_list parts;
    for (const at::Tensor& input : inputs) {
      const std::int64_t count = input.numel() / getSize();
      parts.push_back(input.detach().reshape({-1}).narrow(0, rank * count, count));
    }
    by_rank.push_back(at::cat(parts));
  }
  const host_tensors in(by_rank);
  const host_tensor out(at::empty_like(by_rank.front()));
  const auto call = reduction_call("reduce_scatter_coalesced", movement::to_all, out.tensor(), 0, -1, opts.reduceOp,
                                   unknown_call_site);
  const auto start = start_of(call, hfcomm::detail::check_reduce_scatter_list, hfcomm::detail::reduce_scatter_list,
                              in.const_parts(), out.memory());
  return begin(::c10d::OpType::REDUCE_SCATTER, inputs, outputs, opts.timeout, start,
               [in, out, outputs](const backend_work& /*done*/) { unpack(out.tensor(), outputs); });
}

inline torch_backend::work_ptr torch_backend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                            std::vector<std::int64_t>& output_splits,
                                                            std::vector<std::int64_t>& input_splits,
                                                            const ::c10d::AllToAllOptions& opts) {
  using namespace torch_backend_detail;
  const host_tensor in(input);
  const host_tensor out(output);
  require_one_type(in, out);
  const auto from = split_rows(in, input_splits, getSize());
  const auto to = split_rows(out, output_splits, getSize());
  const auto call = uneven(typed_call("all_to_all", movement::to_all, in.type(), 0, -1, unknown_call_site));
  const auto start = start_of(call, hfcomm::detail::check_all_to_all_list, hfcomm::detail::all_to_all_list,
                              const_parts(from.begin(), from.end()), to);
  return begin(::c10d::OpType::ALLTOALL_BASE, {input}, {output}, opts.timeout, start, write_back_of(out, in));
}

inline torch_backend::work_ptr torch_backend::alltoall(tensor_list& outputs, tensor_list& inputs,
                                                       const ::c10d::AllToAllOptions& opts) {
  using namespace torch_backend_detail;
  const host_tensors in(inputs);
  const host_tensors out(outputs);
  TORCH_CHECK(!inputs.empty() && !outputs.empty(), "hfcomm: an all-to-all needs a tensor for each rank");
  in.require_type(inputs.front().scalar_type());
  out.require_type(inputs.front().scalar_type());
  const auto call =
      uneven(typed_call("all_to_all", movement::to_all, inputs.front().scalar_type(), 0, -1, unknown_call_site));
  const auto start = start_of(call, hfcomm::detail::check_all_to_all_list, hfcomm::detail::all_to_all_list,
                              in.const_parts(), out.parts());
  return begin(::c10d::OpType::ALLTOALL, inputs, outputs, opts.timeout, start, write_back_of(out, in));
}

}  // namespace hfcomm
