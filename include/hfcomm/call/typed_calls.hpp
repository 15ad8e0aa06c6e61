// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <hfcomm/call/argument_checks.hpp>
#include <hfcomm/call/async.hpp>
#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/concepts.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/reduction/kernel.hpp>
#include <hfcomm/group/detail/running_call.hpp>
#include <hfcomm/group/session.hpp>
#include <hfcomm/serialization/encoding.hpp>

/// The common parts of the collectives: they make an `operation` and bytes from a typed call, and objects from bytes.
namespace hfcomm::detail {

template <class T>
operation object_call(operation_name name, movement pattern, int root, call_site where) {
  return {.name = name,
          .pattern = pattern,
          .content = payload::object,
          .root = root,
          .type_hash = hfcomm::type_hash<T>(),
          .type_name = hfcomm::type_name<T>(),
          .where = where};
}

template <class T>
operation buffer_call(operation_name name, movement pattern, std::size_t count, int root, call_site where) {
  return {.name = name,
          .pattern = pattern,
          .content = payload::buffer,
          .element = element_type_of<T>,
          .root = root,
          .type_hash = hfcomm::type_hash<T>(),
          .type_name = hfcomm::type_name<T>(),
          .bytes = count * sizeof(T),
          .where = where};
}

/// Returns the operation on as many elements as `range` has, in host or device memory.
template <memory R>
operation buffer_call(operation_name name, movement pattern, const R& range, int root, call_site where) {
  return buffer_call<value_of<R>>(name, pattern, elements_of(range).count, root, where);
}

inline void set_reduction(operation& call, reduce_op op) noexcept {
  call.reduces = true;
  call.op = op.kind();
  call.factor = op.factor();
}

/// Returns the operation of a reduction that runs on a device, or whose kernel the caller sets.
template <class T>
operation reduction_call_without_kernel(operation_name name, movement pattern, std::size_t count, int root,
                                        reduce_op op, call_site where) {
  operation call = buffer_call<T>(name, pattern, count, root, where);
  set_reduction(call, op);
  return call;
}

template <memory R>
operation reduction_call_without_kernel(operation_name name, movement pattern, const R& range, int root, reduce_op op,
                                        call_site where) {
  return reduction_call_without_kernel<value_of<R>>(name, pattern, elements_of(range).count, root, op, where);
}

/// Returns the operation of a reduction of elements in host memory.
template <class T>
operation reduction_call(operation_name name, movement pattern, std::size_t count, int root, reduce_op op,
                         call_site where) {
  operation call = reduction_call_without_kernel<T>(name, pattern, count, root, op, where);
  call.kernel = &reduce_elements<element_type_of<T>>;
  return call;
}

template <buffer R>
operation reduction_call(operation_name name, movement pattern, const R& range, int root, reduce_op op,
                         call_site where) {
  return reduction_call<value_of<R>>(name, pattern, count_in(range), root, op, where);
}

/// Appends an object's bytes. Where serialization throws, tells the other ranks and throws the exception again.
template <class T>
void encode_or_tell(running_call& running, const operation& call, const T& value, serialization::output_bytes& out) {
  try {
    encode_to(value, out);
  } catch (...) {
    running.fail_again(concat({"serializing its ", call.type_name, " threw: "}));
  }
}

/// Returns this rank's object as bytes. A plain object is its own bytes. Other objects are encoded into the engine's
/// staging memory. If they do not fit there, they are encoded into memory of the engine that the other ranks can read.
template <class T>
std::span<const std::byte> encode_contribution(running_call& running, operation& call, const T& value) {
  std::span<const std::byte> bytes;
  if constexpr (plain<T>) {
    bytes = std::as_bytes(std::span(&value, 1));
  } else {
    const std::span<std::byte> room = running.engine().staging_memory(call);
    serialization::output_bytes out(running.objects(), 0, room);
    encode_or_tell(running, call, value, out);
    bytes = out.written();
  }
  call.bytes = bytes.size();
  return bytes;
}

/// A receiver that assembles objects from their chunks, but for those of ranks from `ranks` on. An object of one chunk
/// is decoded in the engine's memory, without a copy.
class object_assembler : public receiver {
 public:
  object_assembler(const running_call& running, int ranks) : running_(running), ranks_(ranks) {}

  HFCOMM_INLINE void receive(int source, std::span<const std::byte> chunk, std::uint64_t offset,
                             std::uint64_t total) final;

 protected:
  ~object_assembler() = default;

 private:
  /// Takes the bytes of one object.
  virtual void decode(int source, std::span<const std::byte> bytes) = 0;
  void finish(int source, std::span<const std::byte> bytes);

  const running_call& running_;
  int ranks_;
  std::vector<std::vector<std::byte>> partial_;  // by source
};

/// A receiver that calls `store(source, T&&)` with each decoded object.
template <class T, class Store>
class object_receiver final : public object_assembler {
 public:
  object_receiver(const running_call& running, Store store, int ranks = std::numeric_limits<int>::max())
      : object_assembler(running, ranks), store_(std::move(store)) {}

 private:
  void decode(int source, std::span<const std::byte> bytes) override {
    new_object<T> value;
    decode_into(*value, bytes);
    store_(source, std::move(*value));
  }

  Store store_;
};

/// Returns the objects of the first `ranks` ranks, in rank order. `mine` are the bytes of this rank's.
template <class T>
std::vector<T> exchange_encoded(running_call& running, const operation& call, std::span<const std::byte> mine,
                                int ranks) {
  std::vector<T> result(static_cast<std::size_t>(ranks));
  const auto store = [&](int source, T&& received) { result[static_cast<std::size_t>(source)] = std::move(received); };
  object_receiver<T, decltype(store)> received(running, store, ranks);
  running.engine().exchange(call, mine, received);
  return result;
}

/// Returns the objects of the first `ranks` ranks, in rank order, on the ranks that receive; an empty vector elsewhere.
template <class T>
std::vector<T> collect_objects(operation call, const T& value, int ranks, const process_group& group) {
  running_call running(group, call);
  check_root_if_any(running);
  if constexpr (plain<T>) {  // all are equally long, so all ranks know how many steps it takes
    running.allow_early_leave();
  }
  const auto mine = encode_contribution(running, call, value);
  return exchange_encoded<T>(running, call, mine, call.receives(group.rank()) ? ranks : 0);
}

/// Returns `op(op(value0, value1), value2)...`.
template <class T, class BinaryOp>
T fold(std::vector<T> values, BinaryOp& op) {
  T result = std::move(values.front());
  for (std::size_t rank = 1; rank < values.size(); ++rank) {
    result = std::invoke(op, std::move(result), T(std::move(values[rank])));
  }
  return result;
}

/// Returns the objects of the first `ranks` ranks, folded, on the ranks that receive; Result() elsewhere.
template <class Result, class T, class BinaryOp>
Result fold_objects(operation&& call, const T& value, int ranks, BinaryOp& op, const process_group& group) {
  std::vector<T> values = collect_objects(std::move(call), value, ranks, group);
  return values.empty() ? Result() : Result(fold(std::move(values), op));
}

/// Starts the same.
template <class Result, class T, class BinaryOp>
work<Result> start_to_fold_objects(const operation& call, T value, int ranks, BinaryOp op, const process_group& group) {
  const auto run = [ranks](operation&& begun, const T& mine, BinaryOp& its_op, const process_group& its_group) {
    return fold_objects<Result>(std::move(begun), mine, ranks, its_op, its_group);
  };
  return start_on(call, check_root_if_any, run, group, std::move(value), std::move(op));
}

/// Starts to collect every rank's object.
template <class T>
work<std::vector<T>> start_to_collect(const operation& call, T value, const process_group& group) {
  const auto run = [](operation&& begun, const T& mine, const process_group& its_group) {
    return collect_objects(std::move(begun), mine, its_group.size(), its_group);
  };
  return start_on(call, check_root_if_any, run, group, std::move(value));
}

}  // namespace hfcomm::detail
