// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <hfcomm/core/error.hpp>
#include <hfcomm/cuda/nccl_api.hpp>
#include <hfcomm/cuda/runtime_api.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/engine/host_engine.hpp>
#include <hfcomm/engine/nccl/batch.hpp>
#include <hfcomm/engine/nccl/types.hpp>
#include <hfcomm/machine/bounded_call.hpp>

namespace hfcomm::engines {

/// The first operation of a communicator. NCCL connects the ranks in it, on the host, and has no deadline for that; so
/// a network through which nothing comes is found here, and not in the middle of a program.
class nccl_first_operation {
 public:
  /// `data` is one byte on the device.
  nccl_first_operation(const cuda::runtime_api& cuda, const cuda::nccl_api& nccl, int device, ncclComm_t one,
                       void* data) noexcept
      : cuda_(cuda), nccl_(nccl), device_(device), one_(one), data_(data) {}

  /// Collective. Done on a thread of its own, which nobody misses where it never returns; `thread` is `calling` while
  /// it is inside NCCL, and who sets it to `cancelled` before keeps it out. Throws timeout_error and engine_error, and
  /// what looking at `host` throws.
  void run(const shared_whereabouts& thread, host_engine& host, const operation& call,
           const error_context& context) const {
    const auto result = std::make_shared<outcome>();
    const bool ended = run_watched(
        call.timeout, [self = *this, result, thread] { self.perform(*thread, *result); },
        [&] {
          host.health().check_device_operation(context, 0);
          ncclResult_t state = ncclSuccess;
          if (thread->load() == whereabouts::outside) {
            (void)nccl_.ncclCommGetAsyncError(one_, &state);
          }
          if (state != ncclSuccess && state != ncclInProgress) {
            throw engine_error(context, said(nccl_text(nccl_, state)));
          }
        });
    if (!ended) {
      throw timeout_error(context, said("it has not ended within " + format_duration(call.timeout)), {});
    }
    if (result->nccl != ncclSuccess) {
      throw engine_error(context, said(nccl_text(nccl_, result->nccl)));
    }
    cuda_.check(result->cuda, "a first all-reduce on a stream of its own", call.where);
  }

 private:
  struct outcome {
    std::atomic<ncclResult_t> nccl{ncclSuccess};
    std::atomic<cudaError_t> cuda{cudaSuccess};
  };
  static std::string said(const std::string& what) { return "a first all-reduce of one element: " + what; }

  void perform(std::atomic<whereabouts>& thread, outcome& result) const {
    const cuda::thread_on_device here(cuda_, device_);
    int least = 0;
    int greatest = 0;
    cudaStream_t stream = nullptr;
    (void)cuda_.cudaDeviceGetStreamPriorityRange(&least, &greatest);
    result.cuda = cuda_.cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest);
    if (result.cuda != cudaSuccess) {
      return;
    }
    // Unless it was given up in the meantime.
    if (auto nowhere = whereabouts::outside; thread.compare_exchange_strong(nowhere, whereabouts::calling)) {
      ncclResult_t answer = nccl_.ncclAllReduce(data_, data_, 1, ncclUint8, ncclMax, one_, stream);
      while (answer == ncclInProgress) {  // a variable makes NCCL's calls non-blocking
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        (void)nccl_.ncclCommGetAsyncError(one_, &answer);
      }
      result.nccl = answer;
      thread.store(whereabouts::outside);
      result.cuda = cuda_.cudaStreamSynchronize(stream);  // also after a failure: part of it may be on its way
    }
    (void)cuda_.cudaStreamDestroy(stream);
  }

  const cuda::runtime_api& cuda_;
  const cuda::nccl_api& nccl_;
  int device_;
  ncclComm_t one_;
  void* data_;
};

}  // namespace hfcomm::engines
