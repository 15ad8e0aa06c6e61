// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include <nccl.h>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/machine/library.hpp>

namespace hfcomm::cuda {

/// The functions of NCCL that hfcomm calls, under their own names. The last ones are null where NCCL is too old to have
/// them.
struct nccl_api {
  // NOLINTBEGIN(readability-identifier-naming): NCCL's names
  decltype(&::ncclGetVersion) ncclGetVersion = nullptr;
  decltype(&::ncclGetErrorString) ncclGetErrorString = nullptr;
  decltype(&::ncclGetLastError) ncclGetLastError = nullptr;
  decltype(&::ncclGetUniqueId) ncclGetUniqueId = nullptr;
  decltype(&::ncclCommInitRankConfig) ncclCommInitRankConfig = nullptr;
  decltype(&::ncclCommSplit) ncclCommSplit = nullptr;
  decltype(&::ncclCommDestroy) ncclCommDestroy = nullptr;
  decltype(&::ncclCommAbort) ncclCommAbort = nullptr;
  decltype(&::ncclCommGetAsyncError) ncclCommGetAsyncError = nullptr;
  decltype(&::ncclCommCount) ncclCommCount = nullptr;
  decltype(&::ncclCommUserRank) ncclCommUserRank = nullptr;
  decltype(&::ncclGroupStart) ncclGroupStart = nullptr;
  decltype(&::ncclGroupEnd) ncclGroupEnd = nullptr;
  decltype(&::ncclAllReduce) ncclAllReduce = nullptr;
  decltype(&::ncclReduce) ncclReduce = nullptr;
  decltype(&::ncclReduceScatter) ncclReduceScatter = nullptr;
  decltype(&::ncclBroadcast) ncclBroadcast = nullptr;
  decltype(&::ncclAllGather) ncclAllGather = nullptr;
  decltype(&::ncclSend) ncclSend = nullptr;
  decltype(&::ncclRecv) ncclRecv = nullptr;
  decltype(&::ncclRedOpCreatePreMulSum) ncclRedOpCreatePreMulSum = nullptr;
  decltype(&::ncclRedOpDestroy) ncclRedOpDestroy = nullptr;
  // Since 2.19, 2.27.
  ncclResult_t (*ncclMemAlloc)(void**, size_t) = nullptr;
  ncclResult_t (*ncclMemFree)(void*) = nullptr;
  ncclResult_t (*ncclCommRegister)(ncclComm_t, void*, size_t, void**) = nullptr;
  ncclResult_t (*ncclCommDeregister)(ncclComm_t, void*) = nullptr;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  decltype(&::ncclCommWindowRegister) ncclCommWindowRegister = nullptr;
  decltype(&::ncclCommWindowDeregister) ncclCommWindowDeregister = nullptr;
#endif
  // NOLINTEND(readability-identifier-naming)
};

namespace detail {

inline nccl_api load_nccl(const call_site& where) {
  const hfcomm::detail::library found("NCCL", "HFCOMM_NCCL_LIBRARY", "ncclGetVersion", {"libnccl.so.2", "libnccl.so"});
  if (!found.is_found()) {
    hfcomm::detail::throw_error<engine_error>({-1, 0, "NCCL", 0, where}, {found.problem()});
  }
  nccl_api api;
#define HFCOMM_FILL(name, optional) found.fill(api.name, #name, optional, where)
  HFCOMM_FILL(ncclGetVersion, false);
  HFCOMM_FILL(ncclGetErrorString, false);
  HFCOMM_FILL(ncclGetLastError, false);
  HFCOMM_FILL(ncclGetUniqueId, false);
  HFCOMM_FILL(ncclCommInitRankConfig, false);
  HFCOMM_FILL(ncclCommSplit, false);
  HFCOMM_FILL(ncclCommDestroy, false);
  HFCOMM_FILL(ncclCommAbort, false);
  HFCOMM_FILL(ncclCommGetAsyncError, false);
  HFCOMM_FILL(ncclCommCount, false);
  HFCOMM_FILL(ncclCommUserRank, false);
  HFCOMM_FILL(ncclGroupStart, false);
  HFCOMM_FILL(ncclGroupEnd, false);
  HFCOMM_FILL(ncclAllReduce, false);
  HFCOMM_FILL(ncclReduce, false);
  HFCOMM_FILL(ncclReduceScatter, false);
  HFCOMM_FILL(ncclBroadcast, false);
  HFCOMM_FILL(ncclAllGather, false);
  HFCOMM_FILL(ncclSend, false);
  HFCOMM_FILL(ncclRecv, false);
  HFCOMM_FILL(ncclRedOpCreatePreMulSum, false);
  HFCOMM_FILL(ncclRedOpDestroy, false);
  HFCOMM_FILL(ncclMemAlloc, true);
  HFCOMM_FILL(ncclMemFree, true);
  HFCOMM_FILL(ncclCommRegister, true);
  HFCOMM_FILL(ncclCommDeregister, true);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  HFCOMM_FILL(ncclCommWindowRegister, true);
  HFCOMM_FILL(ncclCommWindowDeregister, true);
#endif
#undef HFCOMM_FILL
  return api;
}

}  // namespace detail

/// Returns NCCL's functions, and loads the library at the first call. Throws engine_error, with the places that were
/// searched, where there is none. Any thread may call.
inline const nccl_api& nccl(call_site where = call_site::current()) {
  return hfcomm::detail::table_of(&detail::load_nccl, where);
}

/// Sets another table, which must outlive all users. Null returns to the library. For tests.
inline void use_nccl(const nccl_api* table) noexcept {
  hfcomm::detail::table_in_use<nccl_api>().store(table, std::memory_order_release);
}

}  // namespace hfcomm::cuda
