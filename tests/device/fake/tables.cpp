// SPDX-License-Identifier: MIT
#include <fake/tables.hpp>

#include <fake/kernel_library.hpp>
#include <fake/nccl_communicators.hpp>
#include <fake/nccl_memory.hpp>
#include <fake/nccl_operations.hpp>
#include <fake/runtime.hpp>
#include <fake/runtime_streams.hpp>

namespace fake_cuda {

/// The double's functions as hfcomm's tables.
const hfcomm::cuda::runtime_api& runtime_table() {
  static const hfcomm::cuda::runtime_api table = [] {
    hfcomm::cuda::runtime_api api;
    api.cudaRuntimeGetVersion = detail::runtime_get_version;
    api.cudaGetErrorString = detail::get_error_string;
    api.cudaGetLastError = detail::get_last_error;
    api.cudaGetDeviceCount = detail::get_device_count;
    api.cudaGetDevice = detail::get_device;
    api.cudaSetDevice = detail::set_device;
    api.cudaDeviceSynchronize = detail::device_synchronize;
    api.cudaDeviceGetPCIBusId = detail::device_get_pci_bus_id;
    api.cudaDeviceGetStreamPriorityRange = detail::device_get_stream_priority_range;
    api.cudaThreadExchangeStreamCaptureMode = detail::thread_exchange_stream_capture_mode;
    api.cudaPointerGetAttributes = detail::pointer_get_attributes;
    api.cudaMalloc = detail::malloc_device;
    api.cudaFree = detail::free_device;
    api.cudaHostAlloc = detail::host_alloc;
    api.cudaFreeHost = detail::free_host;
    api.cudaHostRegister = detail::host_register;
    api.cudaHostUnregister = detail::host_unregister;
    api.cudaMemcpyAsync = detail::memcpy_async;
    api.cudaMemsetAsync = detail::memset_async;
    api.cudaStreamCreateWithPriority = detail::stream_create_with_priority;
    api.cudaStreamDestroy = detail::stream_destroy;
    api.cudaStreamQuery = detail::stream_query;
    api.cudaStreamSynchronize = detail::stream_synchronize;
    api.cudaStreamWaitEvent = detail::stream_wait_event;
    api.cudaStreamIsCapturing = detail::stream_is_capturing;
    api.cudaEventCreateWithFlags = detail::event_create_with_flags;
    api.cudaEventDestroy = detail::event_destroy;
    api.cudaEventRecord = detail::event_record;
    api.cudaEventQuery = detail::event_query;
    api.cudaEventSynchronize = detail::event_synchronize;
    api.cudaEventElapsedTime = detail::event_elapsed_time;
#if CUDART_VERSION >= 12080

    api.cudaLibraryLoadData = detail::library_load_data;
    api.cudaLibraryGetKernel = detail::library_get_kernel;
    api.cudaLaunchKernel = detail::launch_kernel;
#endif
    return api;
  }();
  return table;
}

const hfcomm::cuda::nccl_api& nccl_table() {
  static const hfcomm::cuda::nccl_api table = [] {
    hfcomm::cuda::nccl_api api;
    api.ncclGetVersion = detail::get_version;
    api.ncclGetErrorString = detail::nccl_get_error_string;
    api.ncclGetLastError = detail::nccl_get_last_error;
    api.ncclGetUniqueId = detail::get_unique_id;
    api.ncclCommInitRankConfig = detail::comm_init_rank_config;
    api.ncclCommSplit = detail::comm_split;
    api.ncclCommDestroy = detail::comm_destroy;
    api.ncclCommAbort = detail::comm_abort;
    api.ncclCommGetAsyncError = detail::comm_get_async_error;
    api.ncclCommCount = detail::comm_count;
    api.ncclCommUserRank = detail::comm_user_rank;
    api.ncclGroupStart = detail::group_start;
    api.ncclGroupEnd = detail::group_end;
    api.ncclAllReduce = detail::all_reduce;
    api.ncclReduce = detail::reduce;
    api.ncclReduceScatter = detail::reduce_scatter;
    api.ncclBroadcast = detail::broadcast;
    api.ncclAllGather = detail::all_gather;
    api.ncclSend = detail::send;
    api.ncclRecv = detail::recv;
    api.ncclRedOpCreatePreMulSum = detail::red_op_create_pre_mul_sum;
    api.ncclRedOpDestroy = detail::red_op_destroy;
    api.ncclMemAlloc = detail::mem_alloc;
    api.ncclMemFree = detail::mem_free;
    api.ncclCommRegister = detail::comm_register;
    api.ncclCommDeregister = detail::comm_deregister;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    api.ncclCommWindowRegister = detail::comm_window_register;
    api.ncclCommWindowDeregister = detail::comm_window_deregister;
#endif
    return api;
  }();
  return table;
}

}  // namespace fake_cuda
