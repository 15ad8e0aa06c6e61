// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include <hfcomm/core/error.hpp>
#include <hfcomm/cuda/nccl_api.hpp>
#include <hfcomm/cuda/runtime_api.hpp>
#include <hfcomm/cuda/teardown.hpp>
#include <hfcomm/engine/nccl/agreement.hpp>
#include <hfcomm/engine/nccl/batch.hpp>
#include <hfcomm/engine/nccl/communicator.hpp>
#include <hfcomm/engine/nccl/first_operation.hpp>
#include <hfcomm/engine/nccl/nccl_translation.hpp>

namespace hfcomm::engines {

/// Makes a group's NCCL communicator, in steps of which each has a deadline. `connect` and `split` are collective over
/// the host plane: either all ranks get a communicator, or all throw. The group stays usable where no rank was lost.
class nccl_communicator_setup {
 public:
  /// Returns a communicator of all ranks of `host`, or null where all have one already, as `is_connected` says. A rank
  /// with a `problem` makes all ranks throw it.
  static std::unique_ptr<nccl_communicator> connect(const cuda::runtime_api& cuda, const cuda::nccl_api& nccl,
                                                    host_engine& host, const operation& call, int device,
                                                    bool is_connected, const std::string& problem) {
    const nccl_agreement ranks(host, call);
    if (ranks.compare_setups(cuda, nccl, device, is_connected, problem)) {
      return nullptr;
    }
    const ncclUniqueId id = ranks.share_id(nccl);
    // NOLINTNEXTLINE(*make-unique*): the constructor is private
    std::unique_ptr<nccl_communicator> made(new nccl_communicator(cuda, nccl, device));
    ranks.run_on_all([&] { made->abort_unfinished(); },
                     [&] {
                       const nccl_communicator_setup setup(*made, host, host, call);
                       setup.connect_nonblocking(id);
                       setup.split_blocking();
                       setup.warm_up();
                     });
    return made;
  }

  /// Returns a communicator of some of the ranks of `from`. `host` is the host plane of `from`, `part` that of the new
  /// group, whose ranks give the same `color`: one of their ranks in `host`. A rank of no new group gives a null `part`
  /// and gets null. A rank with a `problem` makes all ranks throw it.
  static std::unique_ptr<nccl_communicator> split(nccl_communicator& from, host_engine& host, const operation& call,
                                                  host_engine* part, int color, const char* problem) {
    // NOLINTNEXTLINE(*make-unique*): the constructor is private
    std::unique_ptr<nccl_communicator> made(new nccl_communicator(from.cuda_, from.nccl_, from.device_));
    if (from.split_failed_) {  // on all ranks or on none
      reconnect_nonblocking(from, host, call);
    }
    from.split_failed_ = true;
    const nccl_agreement ranks(host, call);
    ranks.run_on_all([&] { made->abort_unfinished(); },
                     [&] {
                       if (*problem != '\0') {
                         detail::throw_error<engine_error>(ranks.context(), {problem});
                       }
                       const nccl_communicator_setup setup(*made, host, part != nullptr ? *part : host, call);
                       // A rank of no group gets a communicator of its own. With NCCL_SPLIT_NOCOLOR, where another rank
                       // fails, NCCL (2.30 still) writes through a null pointer.
                       setup.split_nonblocking(from, part != nullptr ? color : host.rank());
                       if (part != nullptr) {
                         setup.split_blocking();
                         setup.warm_up();
                       }
                     });
    from.split_failed_ = false;
    if (part == nullptr) {
      made->destroy();
      return nullptr;
    }
    return made;
  }

 private:
  /// `host` is checked for lost ranks; `part` gives the rank and the size of the new communicator.
  nccl_communicator_setup(nccl_communicator& made, host_engine& host, host_engine& part, const operation& call)
      : made_(made),
        host_(host),
        part_(part),
        call_(call),
        context_(nccl_agreement(host, call).context()),
        on_device_(made.cuda_, made.device_),
        relaxed_(made.cuda_) {}

  void connect_nonblocking(const ncclUniqueId& id) const {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    const ncclResult_t begun = nccl().ncclCommInitRankConfig(&comm, part_.size(), id, part_.rank(), &config);
    made_.nonblocking_ = comm;
    require(begun, comm, "ncclCommInitRankConfig");
  }

  void split_nonblocking(nccl_communicator& parent, int color) const {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    made_.nonblocking_ = split_from(parent, color, config);
  }

  void split_blocking() const {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    const ncclComm_t child = split_from(made_, 0, config);
    made_.blocking_ = child;
    int rank = -1;
    int size = 0;
    require(nccl().ncclCommUserRank(child, &rank), child, "ncclCommUserRank");
    require(nccl().ncclCommCount(child, &size), child, "ncclCommCount");
    if (rank != part_.rank() || size != part_.size()) {
      detail::throw_error<engine_error>(context_, {"NCCL made it rank ", rank, " of ", size});
    }
    void* element = nullptr;
    made_.cuda_.check(made_.cuda_.cudaMalloc(&element, 16), "cudaMalloc", call_.where);
    made_.dummy_element_ = element;
  }

  void warm_up() const {
    made_.warm_up_state_ = std::make_shared<std::atomic<thread_state>>(thread_state::outside);
    nccl_first_operation(made_.cuda_, nccl(), made_.device_, made_.blocking_, made_.dummy_element_)
        .run(made_.warm_up_state_, host_, call_, context_);
  }

  /// Makes another non-blocking communicator. A split that failed keeps the old one busy for ever.
  static void reconnect_nonblocking(nccl_communicator& made, host_engine& host, const operation& call) {
    const auto abort_old = [&made] {
      if (const ncclComm_t old = made.nonblocking_.exchange(nullptr); old != nullptr) {
        tear_down(made.cuda_, made.device_, "aborting an NCCL communicator",
                  [&nccl = made.nccl_, old, split_result = made.exchange_split_result(nullptr)] {
                    (void)nccl.ncclCommAbort(old);
                    nccl_communicator::abort_split_result(nccl, split_result);
                  });
      }
    };
    const nccl_agreement ranks(host, call);
    const ncclUniqueId id = ranks.share_id(made.nccl_);
    ranks.run_on_all(abort_old, [&] {
      abort_old();
      nccl_communicator_setup(made, host, host, call).connect_nonblocking(id);
    });
  }

  [[nodiscard]] const cuda::nccl_api& nccl() const noexcept { return made_.nccl_; }

  [[nodiscard]] ncclComm_t split_from(nccl_communicator& parent, int color, ncclConfig_t& config) const {
    // NCCL writes to it later, also where the split fails. So it lives as long as the parent.
    const auto child = std::make_shared<ncclComm_t>(nullptr);
    (void)parent.exchange_split_result(child);
    const ncclComm_t from = parent.nonblocking_;
    const ncclResult_t begun = nccl().ncclCommSplit(from, color, part_.rank(), child.get(), &config);
    // NCCL (2.18 to 2.30) says success where a non-blocking parent has only begun.
    require(begun == ncclSuccess ? ncclInProgress : begun, from, "ncclCommSplit");
    (void)parent.exchange_split_result(nullptr);
    return *child;
  }

  /// Waits where `comm` is still busy with the call. Throws engine_error unless it has succeeded.
  void require(ncclResult_t result, ncclComm_t comm, const char* what) const {
    if (result == ncclInProgress) {
      result = made_.wait_while_in_progress(comm, call_.timeout, context_, what,
                                            [&] { host_.health().check_device_operation(context_, 0); });
    }
    if (result != ncclSuccess) {
      detail::throw_error<engine_error>(context_, {what, ": ", nccl_text(nccl(), result)});
    }
  }

  nccl_communicator& made_;
  host_engine& host_;
  host_engine& part_;
  const operation& call_;
  error_context context_;
  cuda::device_guard on_device_;
  cuda::relaxed_capture relaxed_;
};

}  // namespace hfcomm::engines
