// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/cuda/nccl_api.hpp>
#include <hfcomm/cuda/runtime_api.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/engine/host_engine.hpp>
#include <hfcomm/engine/nccl/batch.hpp>
#include <hfcomm/engine/nccl/nccl_translation.hpp>
#include <hfcomm/machine/bounded_call.hpp>

namespace hfcomm::engines {

/// The first operation of a communicator, an all-reduce of one byte. NCCL connects the ranks in it, on the host,
/// without a deadline. So a network that transfers nothing is found here, and not in the middle of a program.
class nccl_first_operation {
 public:
  /// `data` is one byte on the device.
  nccl_first_operation(const cuda::runtime_api& cuda, const cuda::nccl_api& nccl, int device, ncclComm_t comm,
                       void* data) noexcept
      : cuda_(cuda), nccl_(nccl), device_(device), comm_(comm), data_(data) {}

  /// Runs it. Collective. Throws timeout_error and engine_error, and the error of a lost rank.
  ///
  /// It runs on a thread of its own, which may never return. `state` is `calling` while that thread is in NCCL. Setting
  /// it to `cancelled` before that keeps the thread out of NCCL.
  void run(const shared_thread_state& state, host_engine& host, const operation& call,
           const error_context& context) const {
    const auto result = std::make_shared<outcome>();
    const bool has_ended = run_watched(
        call.timeout, [self = *this, result, thread = state] { self.perform(*thread, *result); },
        [&] {
          host.health().check_device_operation(context, 0);
          ncclResult_t problem = ncclSuccess;
          if (state->load() == thread_state::outside) {
            (void)nccl_.ncclCommGetAsyncError(comm_, &problem);
          }
          if (problem != ncclSuccess && problem != ncclInProgress) {
            detail::throw_error<engine_error>(context, {error_text(nccl_text(nccl_, problem))});
          }
        });
    if (!has_ended) {
      detail::throw_error<timeout_error>(
          context,
          {error_text(detail::concat({"it has not ended within ", format_duration(call.timeout), " (timed out)"}))},
          std::vector<int>{});
    }
    if (result->nccl != ncclSuccess) {
      detail::throw_error<engine_error>(context, {error_text(nccl_text(nccl_, result->nccl))});
    }
    cuda_.check(result->cuda, "a first all-reduce on a stream of its own", call.where);
  }

 private:
  struct outcome {
    std::atomic<ncclResult_t> nccl{ncclSuccess};
    std::atomic<cudaError_t> cuda{cudaSuccess};
  };
  static std::string error_text(const std::string& what) {
    return detail::concat({"a first all-reduce of one element: ", what});
  }

  void perform(std::atomic<thread_state>& state, outcome& result) const {
    const cuda::thread_on_device on_device(cuda_, device_);
    int least = 0;
    int greatest = 0;
    cudaStream_t stream = nullptr;
    (void)cuda_.cudaDeviceGetStreamPriorityRange(&least, &greatest);
    result.cuda = cuda_.cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest);
    if (result.cuda != cudaSuccess) {
      return;
    }
    // Fails where it was cancelled in the meantime.
    if (auto expected = thread_state::outside; state.compare_exchange_strong(expected, thread_state::calling)) {
      ncclResult_t answer = nccl_.ncclAllReduce(data_, data_, 1, ncclUint8, ncclMax, comm_, stream);
      while (answer == ncclInProgress) {  // NCCL_COMM_BLOCKING=0 makes all calls non-blocking
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        (void)nccl_.ncclCommGetAsyncError(comm_, &answer);
      }
      result.nccl = answer;
      state.store(thread_state::outside);
      result.cuda = cuda_.cudaStreamSynchronize(stream);  // also after a failure, where part of it may run
    }
    (void)cuda_.cudaStreamDestroy(stream);
  }

  const cuda::runtime_api& cuda_;
  const cuda::nccl_api& nccl_;
  int device_;
  ncclComm_t comm_;
  void* data_;
};

}  // namespace hfcomm::engines
