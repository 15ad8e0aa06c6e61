// SPDX-License-Identifier: MIT
#pragma once

#include <utility>
#include <vector>

#include <hfcomm/call/async.hpp>
#include <hfcomm/collectives/coalesced.hpp>
#include <hfcomm/collectives/detail/buffer_collectives.hpp>
#include <hfcomm/collectives/detail/coalesced_call.hpp>
#include <hfcomm/torch_backend/backend.hpp>
#include <hfcomm/torch_backend/backend_messages.hpp>
#include <hfcomm/torch_backend/reductions.hpp>
#include <hfcomm/torch_backend/sparse_sum.hpp>
#include <hfcomm/torch_backend/tensors.hpp>

/// The collectives of a torch_backend on one tensor.
namespace hfcomm {

namespace torch_backend_detail {

using engines::movement;

/// Starts `run(call, group)` after `check(checked_call&)`.
template <class Check, class Run>
work<void> start_call(const engines::operation& call, const process_group& group, const Check& check, Run run) {
  const auto collective = [begun = engines::operation(call), run = std::move(run)](
                              const process_group& running, std::source_location /*where*/) mutable {
    run(std::move(begun), running);
  };
  return hfcomm::detail::start_checked(call, check, collective, group);
}

/// Returns the start of an operation from `in` to `out`, after its check. Each is one buffer or a list of parts; a
/// buffer may be both.
template <class In, class CheckedOut, class Out, class Inputs, class Outputs>
auto start_of(const engines::operation& call, void (*check)(hfcomm::detail::checked_call&, In, CheckedOut),
              void (*perform)(engines::operation&&, In, Out, const process_group&), Inputs in, Outputs out) {
  return [=](const process_group& group) {
    return start_call(
        call, group, [&](hfcomm::detail::checked_call& running) { check(running, in, out); },
        [=](engines::operation&& begun, const process_group& running) { perform(std::move(begun), in, out, running); });
  };
}

inline std::vector<hfcomm::detail::coalesced_piece> pieces_of(const host_tensors& tensors,
                                                              const engines::operation& call) {
  std::vector<hfcomm::detail::coalesced_piece> pieces;
  for (const host_tensor& one : tensors) {
    pieces.push_back({call.element, one.memory().bytes(), call.kernel});
  }
  return pieces;
}

/// Starts to reduce every tensor, in place.
inline work<void> start_on_pieces(const engines::operation& call, const process_group& group,
                                  const std::vector<hfcomm::detail::coalesced_piece>& pieces) {
  return start_call(
      call, group,
      [&](hfcomm::detail::checked_call& running) { hfcomm::detail::check_all_reduce_pieces(running, pieces); },
      [pieces](engines::operation&& begun, const process_group& running) {
        const auto describe = [&] {
          return hfcomm::detail::describe_spans(pieces, size_of(begun.element), begun.type_name);
        };
        hfcomm::detail::all_reduce_pieces(begun, pieces, coalesce_options{}.chunk_bytes, running, describe);
      });
}

}  // namespace torch_backend_detail

inline torch_backend::work_ptr torch_backend::broadcast(tensor_list& tensors, const ::c10d::BroadcastOptions& opts) {
  using namespace torch_backend_detail;
  const host_tensor data(only(tensors, "tensors to broadcast"));
  const auto memory = data.memory();
  const auto call = typed_call("broadcast", movement::from_root, data.type(), data.bytes(),
                               static_cast<int>(opts.rootRank), unknown_call_site);
  const auto start = [&](const process_group& group) {
    return start_call(
        call, group, [&](hfcomm::detail::checked_call& running) { hfcomm::detail::check_broadcast(running, memory); },
        [memory](engines::operation&& begun, const process_group& running) {
          hfcomm::detail::broadcast_buffer(std::move(begun), memory, running);
        });
  };
  return begin(::c10d::OpType::BROADCAST, tensors, tensors, opts.timeout, start,
               write_back_where(getRank() != opts.rootRank, data));
}

inline torch_backend::work_ptr torch_backend::allreduce(tensor_list& tensors, const ::c10d::AllreduceOptions& opts) {
  using namespace torch_backend_detail;
  if (only(tensors, "tensors to reduce").is_sparse()) {
    return allreduce_sparse(tensors, opts);
  }
  const host_tensor data(tensors.front());
  const auto call =
      reduction_call("all_reduce", movement::to_all, data.tensor(), data.bytes(), -1, opts.reduceOp, unknown_call_site);
  const auto start =
      start_of(call, hfcomm::detail::check_all_reduce, hfcomm::detail::all_reduce_buffer, data.memory(), data.memory());
  return begin(::c10d::OpType::ALLREDUCE, tensors, tensors, opts.timeout, start, write_back_of(data));
}

inline torch_backend::work_ptr torch_backend::allreduce_sparse(tensor_list& tensors,
                                                               const ::c10d::AllreduceOptions& opts) {
  using namespace torch_backend_detail;
  const at::Tensor result = only(tensors, "tensors to reduce");
  require_sparse(result);
  TORCH_CHECK(opts.reduceOp.op_ == ::c10d::ReduceOp::SUM, "hfcomm: sparse tensors have the reduction SUM only");
  const at::Tensor mine = result.detach();
  return begin(
      ::c10d::OpType::ALLREDUCE, tensors, tensors, opts.timeout,
      [&](const process_group& group) { return sum_of_sparse(mine, group, unknown_call_site); },
      [result](const backend_work& /*done*/, const at::Tensor& sum) { torch::detail::assign(result, sum); });
}

inline torch_backend::work_ptr torch_backend::allreduce_coalesced(tensor_list& tensors,
                                                                  const ::c10d::AllreduceCoalescedOptions& opts) {
  using namespace torch_backend_detail;
  TORCH_CHECK(!tensors.empty(), "hfcomm: the list of tensors is empty");
  const host_tensors data(tensors);
  data.require_type(tensors.front().scalar_type());
  const auto call = reduction_call("all_reduce_coalesced", movement::to_all, tensors.front(), 0, -1, opts.reduceOp,
                                   unknown_call_site);
  const auto start = [&](const process_group& group) { return start_on_pieces(call, group, pieces_of(data, call)); };
  return begin(::c10d::OpType::ALLREDUCE_COALESCED, tensors, tensors, opts.timeout, start, write_back_of(data));
}

inline torch_backend::work_ptr torch_backend::reduce(tensor_list& tensors, const ::c10d::ReduceOptions& opts) {
  using namespace torch_backend_detail;
  const host_tensor data(only(tensors, "tensors to reduce"));
  const auto call = reduction_call("reduce", movement::to_root, data.tensor(), data.bytes(),
                                   static_cast<int>(opts.rootRank), opts.reduceOp, unknown_call_site);
  const auto start =
      start_of(call, hfcomm::detail::check_reduce, hfcomm::detail::reduce_buffer, data.memory(), data.memory());
  return begin(::c10d::OpType::REDUCE, tensors, tensors, opts.timeout, start,
               write_back_where(getRank() == opts.rootRank, data));
}

inline torch_backend::work_ptr torch_backend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                              const ::c10d::AllgatherOptions& opts) {
  using namespace torch_backend_detail;
  const host_tensor in(input);
  const host_tensor out(output);
  require_one_type(in, out);
  const auto call = typed_call("all_gather", movement::to_all, in.type(), in.bytes(), -1, unknown_call_site);
  const auto start =
      start_of(call, hfcomm::detail::check_all_gather, hfcomm::detail::all_gather_buffer, in.memory(), out.memory());
  return begin(::c10d::OpType::_ALLGATHER_BASE, {input}, {output}, opts.timeout, start, write_back_of(out, in));
}

inline torch_backend::work_ptr torch_backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                                   const ::c10d::ReduceScatterOptions& opts) {
  using namespace torch_backend_detail;
  const host_tensor in(input);
  const host_tensor out(output);
  require_one_type(in, out);
  const auto call =
      reduction_call("reduce_scatter", movement::to_all, in.tensor(), in.bytes(), -1, opts.reduceOp, unknown_call_site);
  const auto start = start_of(call, hfcomm::detail::check_reduce_scatter, hfcomm::detail::reduce_scatter_buffer,
                              in.memory(), out.memory());
  return begin(::c10d::OpType::_REDUCE_SCATTER_BASE, {input}, {output}, opts.timeout, start, write_back_of(out, in));
}

}  // namespace hfcomm
