// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <hfcomm/comm.hpp>

#include <fake/element_types.hpp>
#include <fake/world.hpp>

/// NCCL's kernels, by hfcomm's own operations on host memory.
namespace fake_cuda::detail {

enum class collective_kind { all_reduce, reduce, reduce_scatter, broadcast, all_gather };

struct collective {
  collective_kind kind = collective_kind::all_reduce;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;  // elements of the contribution; of the result for a reduce-scatter
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t op = ncclSum;
  scaled_sum scale{};  // where `op` was made by ncclRedOpCreatePreMulSum
  int root = 0;
};

struct message {
  bool outgoing = false;
  void* buffer = nullptr;
  std::size_t bytes = 0;
  int peer = 0;
};

/// The memory of a kernel. Memory that is unaligned or not of the kernel's device is counted as an illegal access.
/// Other memory then takes its place, so that the other ranks can continue.
class kernel_memory {
 public:
  kernel_memory(world& all, int device) : all_(all), device_(device) {}

  template <class T>
  [[nodiscard]] std::span<T> at(void* pointer, std::size_t count) {
    const bool aligned = reinterpret_cast<std::uintptr_t>(pointer) % alignof(T) == 0;
    if (count == 0 || (aligned && all_.memory.usable(pointer, count * sizeof(T), device_))) {
      return {static_cast<T*>(pointer), count};
    }
    ++all_.illegal_accesses;
    substitutes_.emplace_back(new std::byte[count * sizeof(T)]());
    return {reinterpret_cast<T*>(substitutes_.back().get()), count};
  }
  template <class T>
  [[nodiscard]] std::span<const T> at(const void* pointer, std::size_t count) {
    return at<T>(const_cast<void*>(pointer), count);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  }

 private:
  world& all_;
  int device_;
  std::vector<std::unique_ptr<std::byte[]>> substitutes_;
};

template <class T>
T factor_of(const scaled_sum& scale) {
  T factor;
  std::memcpy(&factor, scale.factor_at != nullptr ? scale.factor_at : scale.factor.data(), sizeof(T));
  return factor;
}

/// Calls `run(in, op)`, and does what only NCCL does: averages and scaled sums of integers.
template <class T, class Run>
void reduce_as(const collective& call, std::span<const T> in, std::span<T> out, int ranks, Run run) {
  using hfcomm::reduce_op;
  switch (call.op) {
    case ncclSum: return run(in, reduce_op(reduce_op::sum));
    case ncclProd: return run(in, reduce_op(reduce_op::product));
    case ncclMax: return run(in, reduce_op(reduce_op::max));
    case ncclMin: return run(in, reduce_op(reduce_op::min));
    default: break;
  }
  if constexpr (std::is_integral_v<T>) {
    if (call.op == ncclAvg) {
      run(in, reduce_op(reduce_op::sum));
      for (T& value : out) {
        value = static_cast<T>(value / static_cast<T>(ranks));
      }
      return;
    }
    const T factor = factor_of<T>(call.scale);
    std::vector<T> scaled(in.begin(), in.end());
    for (T& value : scaled) {
      value = static_cast<T>(static_cast<std::uint64_t>(value) * static_cast<std::uint64_t>(factor));
    }
    run(std::span<const T>(scaled), reduce_op(reduce_op::sum));
  } else {
    run(in, call.op == ncclAvg
                ? reduce_op(reduce_op::average)
                : reduce_op(reduce_op::premultiplied_sum(static_cast<double>(factor_of<T>(call.scale)))));
  }
}

template <class T>
void reduce_elements(kernel_memory& memory, const collective& call, const hfcomm::process_group& group) {
  const auto ranks = static_cast<std::size_t>(group.size());
  const bool scatters = call.kind == collective_kind::reduce_scatter;
  const bool receives = call.kind != collective_kind::reduce || call.root == group.rank();
  const auto in = memory.at<T>(call.in, scatters ? call.count * ranks : call.count);
  const auto out = receives ? memory.at<T>(call.out, call.count) : std::span<T>();
  reduce_as<T>(call, in, out, group.size(), [&](std::span<const T> from, hfcomm::reduce_op op) {
    switch (call.kind) {
      case collective_kind::all_reduce: return hfcomm::all_reduce(from, out, op, group);
      case collective_kind::reduce: return hfcomm::reduce(from, out, call.root, op, group);
      default: return hfcomm::reduce_scatter(from, out, op, group);
    }
  });
}

/// Runs one collective. Operations that only move bytes compare the number of bytes, not the type.
inline void run_collective(kernel_memory& memory, const collective& call, const hfcomm::process_group& group) {
  const std::size_t bytes = call.count * size_of(call.type);
  if (call.kind == collective_kind::broadcast) {
    const auto out = memory.at<std::uint8_t>(call.out, bytes);
    if (group.rank() == call.root && call.in != call.out) {
      std::memmove(out.data(), memory.at<std::uint8_t>(call.in, bytes).data(), bytes);
    }
    hfcomm::broadcast(out, call.root, group);
  } else if (call.kind == collective_kind::all_gather) {
    hfcomm::all_gather(memory.at<std::uint8_t>(call.in, bytes),
                       memory.at<std::uint8_t>(call.out, bytes * static_cast<std::size_t>(group.size())), group);
  } else {
    with_type(call.type, [&](auto tag) { reduce_elements<typename decltype(tag)::type>(memory, call, group); });
  }
}

/// The kernel of one communicator for one NCCL group.
struct kernel {
  std::shared_ptr<ncclComm> comm{};
  std::vector<collective> collectives{};
  std::vector<message> messages{};

  /// Runs the kernel. All messages are started before any is waited for.
  void run(world& all, const hfcomm::process_group& group) const {
    kernel_memory memory(all, comm->device);
    std::vector<hfcomm::work<>> under_way;
    for (const auto& one : messages) {
      if (one.outgoing) {
        under_way.push_back(
            hfcomm::isend(memory.at<std::uint8_t>(static_cast<const void*>(one.buffer), one.bytes), one.peer, group));
      } else {
        under_way.push_back(hfcomm::irecv(memory.at<std::uint8_t>(one.buffer, one.bytes), one.peer, group));
      }
    }
    for (const auto& one : collectives) {
      run_collective(memory, one, group);
    }
    for (auto& one : under_way) {
      one.wait();
    }
  }
};

/// Runs a kernel when it is its turn on the communicator. A kernel that fails spins until it is aborted, because over
/// NVLink NCCL detects no errors.
inline void run_kernel(world& all, const kernel& what, std::uint64_t ticket, bool never_completes) {
  ncclComm& comm = *what.comm;
  comm.wait_for_turn(ticket);
  if (never_completes) {
    comm.wait_until_aborted();
  }
  const auto group = comm.copy_of(comm.data);
  if (!comm.aborted.load() && !group) {
    all.note("a graph was launched whose communicator had been destroyed");
  }
  if (!comm.aborted.load() && group) {
    try {
      what.run(all, *group);
    } catch (const std::exception& problem) {
      if (!comm.aborted.load()) {
        all.note(problem.what());
        comm.wait_until_aborted();
      }
    }
  }
  comm.finish_turn();
}

}  // namespace fake_cuda::detail
