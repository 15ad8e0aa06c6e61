// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include <fake/nccl_group.hpp>

/// NCCL's functions that move data.
namespace fake_cuda::detail {

/// Checks the arguments of a call as NCCL does.
inline ncclResult_t check_arguments(world& all, const ncclComm& comm, const std::string& name, int root,
                                    ncclDataType_t type) {
  if (root < 0 || root >= comm.ranks) {
    return refuse(all, ncclInvalidArgument, name + " : invalid root " + std::to_string(root));
  }
  if (!is_type(type)) {
    return refuse(all, ncclInvalidArgument, name + " : invalid type " + std::to_string(static_cast<int>(type)));
  }
  return ncclSuccess;
}

/// Copies the operator that ncclRedOpCreatePreMulSum made into the call, because it may be destroyed before the group
/// ends.
inline ncclResult_t resolve_operator(world& all, ncclComm& comm, const std::string& name, collective& call) {
  const int op = call.op;
  if (op >= 0 && op < ncclNumOps) {
    return ncclSuccess;
  }
  const std::scoped_lock lock(comm.mutex);
  const auto found = comm.sums.find(op);
  if (found == comm.sums.end()) {
    return refuse(all, ncclInvalidArgument,
                  name + " : reduction operation " + std::to_string(op) + " unknown to this communicator");
  }
  if (found->second.type != call.type) {
    return refuse(all, ncclInvalidArgument, name + " : the operator was made for another data type");
  }
  call.scale = found->second;
  return ncclSuccess;
}

/// Makes one call of an operation, in an NCCL group of its own where there is none. An error becomes the state of a
/// non-blocking communicator.
template <class Add>
ncclResult_t operation_call(const char* name, ncclComm_t handle, cudaStream_t stream, Add add) {
  return ready_comm_call(name, handle, [&](world& all, const std::shared_ptr<ncclComm>& comm) {
    begin_group(all);
    auto result = add(all, *comm, [&](auto append) {
      auto status = ncclSuccess;
      if (auto* planned = planned_kernel_for(all, comm, stream, status); planned != nullptr) {
        append(planned->what);
      }
      return status;
    });
    if (result != ncclSuccess) {
      calls_of_group(all).error = result;
    }
    if (result != ncclSuccess && !comm->blocking) {
      const std::scoped_lock lock(comm->mutex);
      comm->error = result;
    }
    const auto ended = end_group(all);
    return result != ncclSuccess ? result : ended;
  });
}

/// Launches an operation of one rank. NCCL does so at once, also in a group, and has no scaled sums of 8-bit floats.
inline ncclResult_t launch_alone(world& all, const ncclComm& comm, cudaStream_t handle, const collective& call) {
  const bool is_8_bit = call.type >= ncclFloat64 && size_of(call.type) == 1;
  if (is_8_bit && (call.op == ncclAvg || call.op >= ncclNumOps)) {
    return refuse(all, ncclInvalidArgument, "one rank has no scaled sum of 8-bit floats");
  }
  planned_kernel alone;
  {
    const std::scoped_lock lock(all.mutex);
    const auto found = all.communicators.find(const_cast<ncclComm*>(&comm));  // NOLINT(*const-cast): a key
    auto* stream = resolve(all, handle, comm.device);
    if (found == all.communicators.end() || stream == nullptr || stream->device != comm.device) {
      return refuse(all, ncclUnhandledCudaError, "the stream is none, or one of another device");
    }
    alone.what.comm = found->second;
    alone.what.collectives.push_back(call);
    alone.streams.push_back(stream);
  }
  return launch_kernel(all, alone);
}

inline ncclResult_t collective_call(const char* name, ncclComm_t handle, cudaStream_t stream, collective call) {
  return operation_call(name, handle, stream, [&](world& all, ncclComm& comm, auto enqueue) {
    if (const auto problem = check_arguments(all, comm, name, call.root, call.type); problem != ncclSuccess) {
      return problem;
    }
    if (const auto problem = resolve_operator(all, comm, name, call); problem != ncclSuccess) {
      return problem;
    }
    if (call.count == 0) {
      return ncclSuccess;  // nobody waits for anybody
    }
    const bool is_root = comm.rank == call.root;
    if ((call.in == nullptr && (call.kind != collective_kind::broadcast || is_root)) ||
        (call.out == nullptr && (call.kind != collective_kind::reduce || is_root))) {
      return refuse(all, ncclInvalidArgument, std::string(name) + " : a buffer is NULL");
    }
    if (comm.ranks == 1) {
      return launch_alone(all, comm, stream, call);
    }
    return enqueue([&](kernel& what) { what.collectives.push_back(call); });
  });
}

inline ncclResult_t message_call(const char* name, ncclComm_t handle, cudaStream_t stream, message call,
                                 std::size_t count, ncclDataType_t type) {
  return operation_call(name, handle, stream, [&](world& all, ncclComm& comm, auto enqueue) {
    if (const auto problem = check_arguments(all, comm, name, call.peer, type); problem != ncclSuccess) {
      return problem;
    }
    if (call.buffer == nullptr && count != 0) {
      return refuse(all, ncclInvalidArgument, std::string(name) + " : the buffer is NULL");
    }
    call.bytes = count * size_of(type);
    return enqueue([&](kernel& what) { what.messages.push_back(call); });
  });
}

inline ncclResult_t all_reduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return collective_call("ncclAllReduce", comm, stream, {collective_kind::all_reduce, in, out, count, type, op, {}, 0});
}

inline ncclResult_t reduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective_call("ncclReduce", comm, stream, {collective_kind::reduce, in, out, count, type, op, {}, root});
}

inline ncclResult_t reduce_scatter(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                                   ncclComm_t comm, cudaStream_t stream) {
  return collective_call("ncclReduceScatter", comm, stream,
                         {collective_kind::reduce_scatter, in, out, count, type, op, {}, 0});
}

inline ncclResult_t broadcast(const void* in, void* out, std::size_t count, ncclDataType_t type, int root,
                              ncclComm_t comm, cudaStream_t stream) {
  return collective_call("ncclBroadcast", comm, stream,
                         {collective_kind::broadcast, in, out, count, type, ncclSum, {}, root});
}

inline ncclResult_t all_gather(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                               cudaStream_t stream) {
  return collective_call("ncclAllGather", comm, stream,
                         {collective_kind::all_gather, in, out, count, type, ncclSum, {}, 0});
}

inline ncclResult_t send(const void* buffer, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                         cudaStream_t stream) {
  void* const writable = const_cast<void*>(buffer);  // NOLINT(cppcoreguidelines-pro-type-const-cast): only read
  return message_call("ncclSend", comm, stream, {true, writable, 0, peer}, count, type);
}

inline ncclResult_t recv(void* buffer, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                         cudaStream_t stream) {
  return message_call("ncclRecv", comm, stream, {false, buffer, 0, peer}, count, type);
}

inline ncclResult_t red_op_create_pre_mul_sum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                              ncclScalarResidence_t residence, ncclComm_t handle) {
  return ready_comm_call("ncclRedOpCreatePreMulSum", handle, [&](world& all, const std::shared_ptr<ncclComm>& comm) {
    if (op == nullptr || scalar == nullptr || !is_type(type)) {
      return refuse(all, ncclInvalidArgument, "ncclRedOpCreatePreMulSum : invalid argument");
    }
    scaled_sum sum;
    sum.type = type;
    if (residence == ncclScalarHostImmediate) {
      std::memcpy(sum.factor.data(), scalar, size_of(type));
    } else {
      sum.factor_at = scalar;
    }
    const std::scoped_lock lock(comm->mutex);
    const int number = comm->next_sum++;
    comm->sums[number] = sum;
    *op = static_cast<ncclRedOp_t>(number);
    return ncclSuccess;
  });
}

inline ncclResult_t red_op_destroy(ncclRedOp_t op, ncclComm_t handle) {
  return comm_call("ncclRedOpDestroy", handle, [&](world& all, const std::shared_ptr<ncclComm>& comm) {
    const std::scoped_lock lock(comm->mutex);
    return comm->sums.erase(op) != 0
               ? ncclSuccess
               : refuse(all, ncclInvalidArgument, "ncclRedOpDestroy : operator unknown to this communicator.");
  });
}

}  // namespace fake_cuda::detail
