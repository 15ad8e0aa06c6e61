// SPDX-License-Identifier: MIT
#pragma once

#include <torch/version.h>
#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include <hfcomm/group/process_group.hpp>
#include <hfcomm/torch_backend/backend_work.hpp>

namespace hfcomm {

/// The base of process groups. Members of torch_backend without `override` are virtual since some version 2 of PyTorch.
#if TORCH_VERSION_MAJOR >= 2
using torch_backend_base = ::c10d::Backend;
#else
using torch_backend_base = ::c10d::ProcessGroup;
#endif

/// Options of a torch_backend.
struct torch_backend_options {
  /// The time that an operation waits for the other ranks, unless the operation's own options set another.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  /// The name that torch.distributed and its profiler show.
  std::string name = "hfcomm";
};

/// A group of torch.distributed whose operations are hfcomm's. Its ranks are processes, which find each other through
/// `store`; each makes its own backend, and the constructor waits for the others.
///
/// On several machines, rank 0's listens at a port of its own, and the machines prove to each other that they know a
/// secret. It is the user's (HFCOMM_SECRET_FILE, HFCOMM_SECRET) where rank 0 has one, else a random one that rank 0
/// puts into the store; then whoever can read the store can join.
///
/// Every operation is started and returns at once. A collective has one tensor, or one list of tensors, for each
/// process. A tensor that is not contiguous, or shares memory with another one of its list, is copied, and copied back
/// where it is written. An input and an output share no memory, or are in place: one is this rank's part of the other
/// (usage_error otherwise). Of bools, a sum or maximum is whether any is true, and a product or minimum whether all
/// are.
///
/// Bad arguments are thrown by the call: c10::Error, or hfcomm's usage_error, which is a std::runtime_error. Other
/// errors are those of the work and of its future, with hfcomm's text. After a deadline or a lost rank the group is
/// broken; monitoredBarrier leaves it usable. A send is done when its receiver has the message.
///
/// Thread-safety: any number of threads. Ranks whose threads start collectives need the same order of them.
class torch_backend : public torch_backend_base {
 public:
  using work_ptr = c10::intrusive_ptr<::c10d::Work>;
  using tensor_list = std::vector<at::Tensor>;
  using tensor_lists = std::vector<std::vector<at::Tensor>>;

  torch_backend(const c10::intrusive_ptr<::c10d::Store>& store, int rank, int size, torch_backend_options options = {});
  torch_backend(const torch_backend&) = delete;
  torch_backend& operator=(const torch_backend&) = delete;
  ~torch_backend() override;

  /// Withdraws the receives that no message has matched, waits for the collectives that were started and for the
  /// callbacks of their futures, and leaves the group. Operations that are started later throw c10::Error.
  void close();

  [[nodiscard]] const std::string getBackendName() const override { return name_; }
  /// Returns the name and the time limit.
  [[nodiscard]] c10::intrusive_ptr<Options> getBackendOptions();
  /// Sets the time that operations wait which are started from now on.
  void setTimeout(std::chrono::milliseconds timeout);

  [[nodiscard]] bool supportsSplitting() const { return true; }
  /// Makes the group of these ranks of this group, in this order, which meet through `store`. All of them call it.
  /// Other ranks may call it, too, and get null. `opts` has the group's time limit.
  [[nodiscard]] virtual c10::intrusive_ptr<torch_backend_base> split(const c10::intrusive_ptr<::c10d::Store>& store,
                                                                     const std::vector<int>& ranks,
                                                                     const c10::intrusive_ptr<Options>& opts);

  work_ptr broadcast(tensor_list& tensors, const ::c10d::BroadcastOptions& opts) override;
  work_ptr allreduce(tensor_list& tensors, const ::c10d::AllreduceOptions& opts) override;
  /// Adds up sparse tensors of coordinates; `allreduce` does it for such a tensor, too.
  work_ptr allreduce_sparse(tensor_list& tensors, const ::c10d::AllreduceOptions& opts);
  work_ptr allreduce_coalesced(tensor_list& tensors, const ::c10d::AllreduceCoalescedOptions& opts) override;
  work_ptr reduce(tensor_list& tensors, const ::c10d::ReduceOptions& opts) override;
  work_ptr allgather(tensor_lists& outputs, tensor_list& inputs, const ::c10d::AllgatherOptions& opts) override;
  work_ptr _allgather_base(at::Tensor& output, at::Tensor& input, const ::c10d::AllgatherOptions& opts) override;
  work_ptr allgather_coalesced(tensor_lists& outputs, tensor_list& inputs,
                               const ::c10d::AllgatherOptions& opts) override;
  /// Gathers each input into its output, as _allgather_base does; all of one type.
  work_ptr allgather_into_tensor_coalesced(tensor_list& outputs, tensor_list& inputs,
                                           const ::c10d::AllgatherOptions& opts);
  work_ptr gather(tensor_lists& outputs, tensor_list& inputs, const ::c10d::GatherOptions& opts) override;
  work_ptr scatter(tensor_list& outputs, tensor_lists& inputs, const ::c10d::ScatterOptions& opts) override;
  work_ptr reduce_scatter(tensor_list& outputs, tensor_lists& inputs,
                          const ::c10d::ReduceScatterOptions& opts) override;
  work_ptr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                const ::c10d::ReduceScatterOptions& opts) override;
  /// Reduces and scatters each input into its output, as _reduce_scatter_base does; all of one type.
  work_ptr reduce_scatter_tensor_coalesced(tensor_list& outputs, tensor_list& inputs,
                                           const ::c10d::ReduceScatterOptions& opts);
  work_ptr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                         std::vector<std::int64_t>& input_splits, const ::c10d::AllToAllOptions& opts) override;
  work_ptr alltoall(tensor_list& outputs, tensor_list& inputs, const ::c10d::AllToAllOptions& opts) override;
  work_ptr send(tensor_list& tensors, int destination, int tag) override;
  work_ptr recv(tensor_list& tensors, int source, int tag) override;
  work_ptr recvAnysource(tensor_list& tensors, int tag) override;
  work_ptr barrier(const ::c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const ::c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  /// Does nothing: the numbers of all ranks begin with 0.
  void setSequenceNumberForGroup() override {}
  /// Returns the number of collectives that were started here.
  [[nodiscard]] std::uint64_t getSequenceNumberForGroup() override;

 protected:
  /// Does what `split` does, for a group of the type `Backend`.
  template <class Backend>
  [[nodiscard]] c10::intrusive_ptr<torch_backend_base> split_as(const c10::intrusive_ptr<::c10d::Store>& store,
                                                                const std::vector<int>& ranks,
                                                                const c10::intrusive_ptr<Options>& opts);

 private:
  using backend_work = torch_backend_detail::backend_work;

  /// Starts an operation: `start(group)` returns its hfcomm::work, and `after(backend_work&, value...)` is called when
  /// it is done.
  template <class Start, class After>
  c10::intrusive_ptr<backend_work> begin(::c10d::OpType type, const tensor_list& inputs, const tensor_list& outputs,
                                         std::chrono::milliseconds timeout, Start start, After after);
  [[nodiscard]] std::uint64_t next_monitored_barrier();

  const std::string name_;
  c10::intrusive_ptr<::c10d::Store> store_;

  std::mutex starting_;  ///< A group is used by one thread at a time. Guards all below.
  std::chrono::milliseconds timeout_;
  process_group group_;
  std::uint64_t monitored_barriers_ = 0;
  std::uint64_t collectives_ = 0;
  bool is_closed_ = false;
  std::vector<c10::weak_intrusive_ptr<backend_work>> pending_;  ///< Collectives and receives, some of them done.
};

}  // namespace hfcomm
