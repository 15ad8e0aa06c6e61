// SPDX-License-Identifier: MIT
#pragma once

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <utility>

#include <hfcomm/collectives/barrier.hpp>
#include <hfcomm/collectives/detail/message.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/torch_backend/backend.hpp>
#include <hfcomm/torch_backend/monitored_barrier.hpp>
#include <hfcomm/torch_backend/store_rendezvous.hpp>
#include <hfcomm/torch_backend/tensors.hpp>

/// The life of a torch_backend, its messages and barriers.
namespace hfcomm {

namespace torch_backend_detail {

/// Returns `text` as a string that outlives the program, as PyTorch's profiler requires.
inline const char* lasting_text(const std::string& text) {
  static std::mutex guard;
  static auto* const texts = new std::set<std::string>();  // never destroyed: works may outlive static objects
  const std::lock_guard lock(guard);
  return texts->insert(text).first->c_str();
}

/// Returns the name by which the profiler knows an operation of a backend.
inline const char* profiling_title(const std::string& backend, ::c10d::OpType type) {
  const auto name = [type]() -> std::string {
    switch (type) {
      case ::c10d::OpType::BROADCAST: return "broadcast";
      case ::c10d::OpType::ALLREDUCE:
      case ::c10d::OpType::ALLREDUCE_COALESCED: return "all_reduce";
      case ::c10d::OpType::REDUCE: return "reduce";
      case ::c10d::OpType::ALLGATHER:
      case ::c10d::OpType::ALLGATHER_COALESCED: return "all_gather";
      case ::c10d::OpType::_ALLGATHER_BASE: return "_all_gather_base";
      case ::c10d::OpType::GATHER: return "gather";
      case ::c10d::OpType::SCATTER: return "scatter";
      case ::c10d::OpType::REDUCE_SCATTER: return "reduce_scatter";
      case ::c10d::OpType::_REDUCE_SCATTER_BASE: return "_reduce_scatter_base";
      case ::c10d::OpType::ALLTOALL_BASE:
      case ::c10d::OpType::ALLTOALL: return "all_to_all";
      case ::c10d::OpType::SEND: return "send";
      case ::c10d::OpType::RECV: return "recv";
      case ::c10d::OpType::RECVANYSOURCE: return "recvAnySource";
      case ::c10d::OpType::BARRIER: return "barrier";
      default: return "unknown";
    }
  };
  return lasting_text(detail::concat({backend, ':', name()}));
}

/// Returns a message of the tensor's elements to or from rank `other`.
inline std::shared_ptr<engines::transfer> message_of(engines::operation call, const process_group& group, int other,
                                                     int tag) {
  const auto allowed = other == hfcomm::detail::any_source_rank ? hfcomm::detail::allowed_peer::unknown
                                                                : hfcomm::detail::allowed_peer::any_rank;
  const auto pattern = call.pattern;
  return hfcomm::detail::message(std::move(call), group, pattern, other, allowed, tag);
}

/// Starts to receive the elements of `data`; the work's value is the sender.
inline work<int> receive_into(const host_tensor& data, const process_group& group, int source, int tag) {
  const auto message =
      message_of(typed_call("irecv", engines::movement::receive, data.type(), data.bytes(), source, unknown_call_site),
                 group, source, tag);
  message->into = data.memory().bytes();
  return hfcomm::detail::start_message(group, message, [](const engines::transfer& came) { return came.source; });
}

/// Returns the end of an operation that writes into `data`, a tensor or a list. It keeps the operation's `inputs`.
/// Throws c10::Error where results cannot be written into it.
template <class Data, class... Inputs>
auto write_back_of(Data data, Inputs... inputs) {
  data.require_writable();
  return [data = std::move(data), ... kept = std::move(inputs)](const backend_work& /*done*/) { data.write_back(); };
}

/// The same for an operation that writes on some ranks only. (Not every tensor that is read can be written.)
inline auto write_back_where(bool writes, host_tensor data) {
  if (writes) {
    data.require_writable();
  }
  return [writes, data = std::move(data)](const backend_work& /*done*/) {
    if (writes) {
      data.write_back();
    }
  };
}

}  // namespace torch_backend_detail

inline torch_backend::torch_backend(const c10::intrusive_ptr<::c10d::Store>& store, int rank, int size,
                                    torch_backend_options options)
    : torch_backend_base(rank, size),
      name_(std::move(options.name)),
      store_(torch_backend_detail::store_of_group(store, rank)),
      timeout_(options.timeout),
      group_(torch_backend_detail::connect_over(store_, rank, size, options.timeout)) {}

inline torch_backend::~torch_backend() { close(); }

inline void torch_backend::close() {
  std::vector<c10::weak_intrusive_ptr<backend_work>> works;
  process_group left;
  {
    const std::lock_guard lock(starting_);
    is_closed_ = true;
    std::swap(works, pending_);
    std::swap(left, group_);
  }
  for (const auto& work : works) {
    if (const auto pending = work.lock()) {
      pending->abort();
    }
  }
  for (const auto& work : works) {
    if (const auto pending = work.lock()) {
      pending->await_callbacks();
    }
  }
}

inline c10::intrusive_ptr<torch_backend::Options> torch_backend::getBackendOptions() {
  const std::lock_guard lock(starting_);
  return c10::make_intrusive<Options>(name_, timeout_);
}

inline void torch_backend::setTimeout(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(starting_);
  timeout_ = timeout;
  group_ = group_.with_timeout(std::max(timeout, std::chrono::milliseconds(1)));
}

template <class Backend>
c10::intrusive_ptr<torch_backend_base> torch_backend::split_as(const c10::intrusive_ptr<::c10d::Store>& store,
                                                               const std::vector<int>& ranks,
                                                               const c10::intrusive_ptr<Options>& opts) {
  const auto mine = std::find(ranks.begin(), ranks.end(), getRank());
  if (mine == ranks.end()) {
    return {};
  }
  return c10::make_intrusive<Backend>(torch_backend_detail::own_connection(store),
                                      static_cast<int>(mine - ranks.begin()), static_cast<int>(ranks.size()),
                                      torch_backend_options{.timeout = opts->timeout, .name = name_});
}

inline c10::intrusive_ptr<torch_backend_base> torch_backend::split(const c10::intrusive_ptr<::c10d::Store>& store,
                                                                   const std::vector<int>& ranks,
                                                                   const c10::intrusive_ptr<Options>& opts) {
  return split_as<torch_backend>(store, ranks, opts);
}

template <class Start, class After>
c10::intrusive_ptr<torch_backend::backend_work> torch_backend::begin(::c10d::OpType type, const tensor_list& inputs,
                                                                     const tensor_list& outputs,
                                                                     std::chrono::milliseconds timeout, Start start,
                                                                     After after) {
  auto done = c10::make_intrusive<backend_work>(getRank(), type, torch_backend_detail::profiling_title(name_, type),
                                                inputs, outputs);
  const std::lock_guard lock(starting_);
  TORCH_CHECK(!is_closed_, "hfcomm: the process group was closed");
  // Zero is at once in c10d, and for ever in hfcomm.
  const auto group =
      timeout < timeout.zero() ? group_ : group_.with_timeout(std::max(timeout, std::chrono::milliseconds(1)));
  auto operation = start(group);
  collectives_ += ::c10d::isP2POp(type) ? 0 : 1;
  done->set_operation(torch_backend_detail::complete_after(std::move(operation), done, std::move(after)));
  if (type != ::c10d::OpType::SEND) {  // whose receiver may never come
    std::erase_if(pending_, [](const auto& work) { return work.expired(); });
    pending_.emplace_back(done);
  }
  return done;
}

inline torch_backend::work_ptr torch_backend::send(tensor_list& tensors, int destination, int tag) {
  using namespace torch_backend_detail;
  const host_tensor data(only(tensors, "tensors to send"));
  TORCH_CHECK(destination >= 0, "hfcomm: the destination ", destination, " is no rank");
  const auto start = [&](const process_group& group) {
    const auto message = message_of(
        typed_call("isend", engines::movement::send, data.type(), data.bytes(), destination, unknown_call_site), group,
        destination, tag);
    message->data = data.memory().bytes();
    return hfcomm::detail::start_message(group, message, [](const engines::transfer& /*sent*/) {});
  };
  return begin(::c10d::OpType::SEND, tensors, {}, ::c10d::kUnsetTimeout, start,
               [data](const backend_work& /*done*/) {});
}

inline torch_backend::work_ptr torch_backend::recv(tensor_list& tensors, int source, int tag) {
  using namespace torch_backend_detail;
  const host_tensor data(only(tensors, "tensors to receive"));
  data.require_writable();
  TORCH_CHECK(source >= 0, "hfcomm: the source ", source, " is no rank");
  return begin(
      ::c10d::OpType::RECV, tensors, tensors, ::c10d::kUnsetTimeout,
      [&](const process_group& group) { return receive_into(data, group, source, tag); },
      [data](const backend_work& /*done*/, int /*source*/) { data.write_back(); });
}

inline torch_backend::work_ptr torch_backend::recvAnysource(tensor_list& tensors, int tag) {
  using namespace torch_backend_detail;
  const host_tensor data(only(tensors, "tensors to receive"));
  data.require_writable();
  return begin(
      ::c10d::OpType::RECVANYSOURCE, tensors, tensors, ::c10d::kUnsetTimeout,
      [&](const process_group& group) { return receive_into(data, group, hfcomm::detail::any_source_rank, tag); },
      [data](backend_work& done, int source) {
        data.write_back();
        done.set_source(source);
      });
}

inline torch_backend::work_ptr torch_backend::barrier(const ::c10d::BarrierOptions& opts) {
  return begin(
      ::c10d::OpType::BARRIER, {}, {}, opts.timeout,
      [](const process_group& group) { return barrier_async(group, torch_backend_detail::unknown_call_site); },
      [](const backend_work& /*done*/) {});
}

inline void torch_backend::monitoredBarrier(const ::c10d::BarrierOptions& opts, bool wait_all_ranks) {
  const auto timeout = opts.timeout < opts.timeout.zero() ? getBackendOptions()->timeout : opts.timeout;
  torch_backend_detail::pass_monitored_barrier(*store_, next_monitored_barrier(), getRank(), getSize(), timeout,
                                               wait_all_ranks);
}

inline std::uint64_t torch_backend::next_monitored_barrier() {
  const std::lock_guard lock(starting_);
  return ++monitored_barriers_;
}

inline std::uint64_t torch_backend::getSequenceNumberForGroup() {
  const std::lock_guard lock(starting_);
  return collectives_;
}

}  // namespace hfcomm
