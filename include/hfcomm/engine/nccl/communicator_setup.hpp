// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <hfcomm/core/error.hpp>
#include <hfcomm/cuda/nccl_api.hpp>
#include <hfcomm/cuda/runtime_api.hpp>
#include <hfcomm/cuda/teardown.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/engine/group_health.hpp>
#include <hfcomm/engine/host_engine.hpp>
#include <hfcomm/engine/nccl/agreement.hpp>
#include <hfcomm/engine/nccl/batch.hpp>
#include <hfcomm/engine/nccl/communicator.hpp>
#include <hfcomm/engine/nccl/nccl_translation.hpp>
#include <hfcomm/machine/bounded_call.hpp>

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

  /// Runs a first operation, an all-reduce of one byte. NCCL connects the ranks in it, on the host, without a deadline.
  /// So a network that transfers nothing is found here, and not in the middle of a program. Throws timeout_error and
  /// engine_error, and the error of a lost rank.
  ///
  /// It runs on a thread of its own, which may never return. The state is `calling` while that thread is in NCCL.
  /// Setting it to `cancelled` before that keeps the thread out of NCCL.
  void warm_up() const {
    const auto state = std::make_shared<std::atomic<thread_state>>(thread_state::outside);
    made_.warm_up_state_ = state;
    const ncclComm_t comm = made_.blocking_;
    const first_operation first{made_.cuda_, nccl(), made_.device_, comm, made_.dummy_element_};
    const auto result = std::make_shared<first_result>();
    const bool has_ended = run_watched(
        call_.timeout, [first, result, state] { first.perform(*state, *result); },
        [&] {
          host_.health().check_device_operation(context_, 0);
          ncclResult_t problem = ncclSuccess;
          if (state->load() == thread_state::outside) {
            (void)nccl().ncclCommGetAsyncError(comm, &problem);
          }
          require_first(problem == ncclInProgress ? ncclSuccess : problem);
        });
    if (!has_ended) {
      detail::throw_error<timeout_error>(
          context_, {first_text, "it has not ended within ", format_duration(call_.timeout), " (timed out)"},
          std::vector<int>{});
    }
    require_first(result->nccl);
    made_.cuda_.check(result->cuda, "a first all-reduce on a stream of its own", call_.where);
  }

  void require_first(ncclResult_t result) const {
    if (result != ncclSuccess) {
      detail::throw_error<engine_error>(context_, {first_text, nccl_text(nccl(), result)});
    }
  }

  static constexpr const char* first_text = "a first all-reduce of one element: ";
  struct first_result {
    std::atomic<ncclResult_t> nccl{ncclSuccess};
    std::atomic<cudaError_t> cuda{cudaSuccess};
  };
  /// Arguments of the thread that runs the first operation. `data` is one byte on the device.
  struct first_operation {
    void perform(std::atomic<thread_state>& state, first_result& result) const {
      const cuda::thread_on_device on_device(runtime, device);
      int least = 0;
      int greatest = 0;
      cudaStream_t stream = nullptr;
      (void)runtime.cudaDeviceGetStreamPriorityRange(&least, &greatest);
      result.cuda = runtime.cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest);
      if (result.cuda != cudaSuccess) {
        return;
      }
      // Fails where it was cancelled in the meantime.
      if (auto expected = thread_state::outside; state.compare_exchange_strong(expected, thread_state::calling)) {
        ncclResult_t answer = api.ncclAllReduce(data, data, 1, ncclUint8, ncclMax, comm, stream);
        while (answer == ncclInProgress) {  // NCCL_COMM_BLOCKING=0 makes all calls non-blocking
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          (void)api.ncclCommGetAsyncError(comm, &answer);
        }
        result.nccl = answer;
        state.store(thread_state::outside);
        result.cuda = runtime.cudaStreamSynchronize(stream);  // also after a failure, where part of it may run
      }
      (void)runtime.cudaStreamDestroy(stream);
    }

    const cuda::runtime_api& runtime;
    const cuda::nccl_api& api;
    int device;
    ncclComm_t comm;
    void* data;
  };

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
