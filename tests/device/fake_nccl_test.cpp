// SPDX-License-Identifier: MIT
// The test double itself: NCCL's operations and communicators.
#include <doctest/doctest.h>

#include <cstdint>
#include <span>
#include <type_traits>

#include <hfcomm/collectives/broadcast.hpp>
#include <hfcomm/core/float16.hpp>
#include <hfcomm/core/float8.hpp>
#include <hfcomm/group/launch.hpp>

#include "fake_ranks.hpp"

namespace {

using namespace fake_ranks;

/// Each rank contributes its number + 1.
template <class T>
void check_reductions(ncclDataType_t type, int rank, int ranks, ncclComm_t comm) {
  INFO("type ", static_cast<int>(type), " on rank ", rank, " of ", ranks);
  const stream where;
  const auto mine = [rank] { return static_cast<T>(static_cast<float>(rank + 1)); };
  const auto expected = [ranks](ncclRedOp_t op) {
    const int n = ranks;
    const int average = std::is_integral_v<T> ? (n + 1) / 2 : 0;
    switch (op) {
      case ncclSum: return static_cast<float>(n * (n + 1) / 2);
      case ncclProd: return n == 3 ? 6.0F : 2.0F;
      case ncclMin: return 1.0F;
      case ncclMax: return static_cast<float>(n);
      default: return average != 0 ? static_cast<float>((n * (n + 1) / 2) / n) : static_cast<float>(n + 1) / 2;
    }
  };
  const auto count = static_cast<std::size_t>(5);
  const auto all = count * static_cast<std::size_t>(ranks);
  for (const auto op : {ncclSum, ncclProd, ncclMin, ncclMax, ncclAvg}) {
    const auto result = static_cast<T>(expected(op));
    device_array<T> in(all, mine());
    device_array<T> out(all);
    CHECK(nccl().ncclAllReduce(in.get(), out.get(), all, type, op, comm, where) == ncclSuccess);
    where.wait();
    CHECK(out.all(result));
    CHECK(in.all(mine()));
    CHECK(nccl().ncclReduce(in.get(), out.get(), all, type, op, ranks - 1, comm, where) == ncclSuccess);
    CHECK(nccl().ncclReduceScatter(in.get(), in.get() + static_cast<std::size_t>(rank) * count, count, type, op, comm,
                                   where) == ncclSuccess);
    where.wait();
    CHECK(out.all(result));
    CHECK(in[static_cast<std::size_t>(rank) * count] == result);
    CHECK(in[static_cast<std::size_t>(rank) * count + count - 1] == result);
  }
  ncclRedOp_t scaled = ncclSum;
  T factor = static_cast<T>(2.0F);
  CHECK(nccl().ncclRedOpCreatePreMulSum(&scaled, &factor, type, ncclScalarHostImmediate, comm) == ncclSuccess);
  device_array<T> data(count, mine());
  CHECK(nccl().ncclAllReduce(data.get(), data.get(), count, type, scaled, comm, where) == ncclSuccess);
  CHECK(nccl().ncclRedOpDestroy(scaled, comm) == ncclSuccess);  // it has been copied
  where.wait();
  CHECK(data.all(static_cast<T>(static_cast<float>(ranks * (ranks + 1)))));
  CHECK(nccl().ncclRedOpDestroy(scaled, comm) == ncclInvalidArgument);
}

TEST_CASE("fake NCCL: all operations work on all types") {
  for (const int ranks : {2, 3}) {
    const fake_cuda::install fake;
    const auto id = new_id();
    on_ranks(ranks, [&](int rank) {
      const auto comm = join(id, rank, ranks);
      int told = 0;
      CHECK(nccl().ncclCommCount(comm, &told) == ncclSuccess);
      CHECK(told == ranks);
      CHECK(nccl().ncclCommUserRank(comm, &told) == ncclSuccess);
      CHECK(told == rank);
      check_reductions<std::int8_t>(ncclInt8, rank, ranks, comm);
      check_reductions<std::uint8_t>(ncclUint8, rank, ranks, comm);
      check_reductions<std::int32_t>(ncclInt32, rank, ranks, comm);
      check_reductions<std::uint32_t>(ncclUint32, rank, ranks, comm);
      check_reductions<std::int64_t>(ncclInt64, rank, ranks, comm);
      check_reductions<std::uint64_t>(ncclUint64, rank, ranks, comm);
      check_reductions<float>(ncclFloat32, rank, ranks, comm);
      check_reductions<double>(ncclFloat64, rank, ranks, comm);
      check_reductions<hfcomm::float16>(ncclFloat16, rank, ranks, comm);
      check_reductions<hfcomm::bfloat16>(ncclBfloat16, rank, ranks, comm);
      check_reductions<hfcomm::float8_e4m3>(ncclFloat8e4m3, rank, ranks, comm);
      check_reductions<hfcomm::float8_e5m2>(ncclFloat8e5m2, rank, ranks, comm);

      const stream where;
      device_array<int> in(3, rank);
      device_array<int> out(9, -1);
      CHECK(nccl().ncclAllGather(in.get(), out.get(), 3, ncclInt32, comm, where) == ncclSuccess);
      where.wait();
      for (int other = 0; other < ranks; ++other) {
        CHECK(out[static_cast<std::size_t>(other) * 3 + 2] == other);
      }
      // Elsewhere than on the root, what is to be sent is not looked at.
      CHECK(nccl().ncclBroadcast(rank == 1 ? in.get() : nullptr, out.get(), 3, ncclInt32, 1, comm, where) ==
            ncclSuccess);
      CHECK(nccl().ncclBroadcast(in.get(), in.get(), 3, ncclInt32, 0, comm, where) == ncclSuccess);
      where.wait();
      CHECK(out[2] == 1);
      CHECK(in.all(0));
      CHECK(nccl().ncclCommDestroy(comm) == ncclSuccess);
    });
    CHECK(fake_cuda::live() == fake_cuda::live_objects{});
    CHECK(fake_cuda::illegal_accesses() == 0);
    CHECK(fake_cuda::problems().empty());
  }
}

TEST_CASE("fake NCCL: messages of one group run together, also to oneself") {
  const fake_cuda::install fake;
  const auto id = new_id();
  on_ranks(3, [&](int rank) {
    const auto comm = join(id, rank, 3);
    const stream where;
    device_array<int> in(3, 10 * rank);
    device_array<int> out(3, -1);
    CHECK(nccl().ncclGroupStart() == ncclSuccess);
    CHECK(nccl().ncclGroupStart() == ncclSuccess);
    for (int peer = 0; peer < 3; ++peer) {
      const auto at = static_cast<std::size_t>(peer);
      CHECK(nccl().ncclSend(in.get() + at, 1, ncclInt32, peer, comm, where) == ncclSuccess);
      CHECK(nccl().ncclRecv(out.get() + at, 1, ncclInt32, peer, comm, where) == ncclSuccess);
    }
    CHECK(nccl().ncclGroupEnd() == ncclSuccess);
    CHECK(nccl().ncclGroupEnd() == ncclSuccess);
    where.wait();
    CHECK(out[0] == 0);
    CHECK(out[1] == 10);
    CHECK(out[2] == 20);

    // Collectives and messages in one group, on two streams; types need not agree where bytes only move.
    const stream other;
    device_array<float> sum(4, 1.0F);
    CHECK(nccl().ncclGroupStart() == ncclSuccess);
    CHECK(nccl().ncclSend(in.get(), rank == 0 ? 1 : 4, rank == 0 ? ncclInt32 : ncclInt8, (rank + 1) % 3, comm, where) ==
          ncclSuccess);
    CHECK(nccl().ncclAllReduce(sum.get(), sum.get(), 4, ncclFloat32, ncclSum, comm, other) == ncclSuccess);
    CHECK(nccl().ncclRecv(out.get(), 1, ncclInt32, (rank + 2) % 3, comm, where) == ncclSuccess);
    CHECK(nccl().ncclSend(nullptr, 0, ncclInt32, (rank + 1) % 3, comm, where) == ncclSuccess);
    CHECK(nccl().ncclRecv(nullptr, 0, ncclInt32, (rank + 2) % 3, comm, where) == ncclSuccess);
    CHECK(nccl().ncclGroupEnd() == ncclSuccess);
    other.wait();
    CHECK(sum.all(3.0F));
    CHECK(out[0] == 10 * ((rank + 2) % 3));
    CHECK(nccl().ncclCommDestroy(comm) == ncclSuccess);
  });
  CHECK(fake_cuda::problems().empty());
}

TEST_CASE("fake NCCL: a single rank's operations are launched at once, even in a group") {
  const fake_cuda::install fake;
  const auto comm = join(new_id(), 0, 1, false);
  device_array<int> data(2, 5);
  device_array<int> copy(2, 0);
  CHECK(nccl().ncclGroupStart() == ncclSuccess);
  CHECK(nccl().ncclAllReduce(data.get(), copy.get(), 2, ncclInt32, ncclSum, comm, nullptr) == ncclSuccess);
  CHECK(runtime().cudaStreamSynchronize(nullptr) == cudaSuccess);
  CHECK(copy.all(5));
  CHECK(nccl().ncclGroupEnd() == ncclSuccess);
}

TEST_CASE("fake NCCL: each launch of a graph runs a captured operation") {
  const fake_cuda::install fake;
  const auto id = new_id();
  on_ranks(2, [&](int rank) {
    const auto comm = join(id, rank, 2);
    const stream where;
    device_array<int> data(2, 1);
    fake_cuda::begin_capture(where);
    CHECK(nccl().ncclAllReduce(data.get(), data.get(), 2, ncclInt32, ncclSum, comm, where) == ncclSuccess);
    const auto graph = fake_cuda::end_capture(where);
    where.wait();
    CHECK(data.all(1));
    graph.launch(where);
    graph.launch(where);
    where.wait();
    CHECK(data.all(4));
    CHECK(nccl().ncclCommDestroy(comm) == ncclSuccess);
  });
}

TEST_CASE("fake NCCL: a nonblocking communicator is polled") {
  const fake_cuda::install fake;
  const auto id = new_id();
  on_ranks(2, [&](int rank) {
    ncclComm_t comm = nullptr;
    auto wish = config(false);
    CHECK(nccl().ncclCommInitRankConfig(&comm, 2, id, rank, &wish) == ncclInProgress);
    REQUIRE(comm != nullptr);
    int told = 0;
    CHECK(nccl().ncclCommCount(comm, &told) == ncclInvalidArgument);
    CHECK(state_of(comm) == ncclInProgress);
    CHECK(state_of(comm) == ncclInProgress);
    CHECK(settle(comm) == ncclSuccess);
    const stream where;
    device_array<int> data(2, 1);
    for (int turn = 0; turn < 2; ++turn) {
      CHECK(nccl().ncclAllReduce(data.get(), data.get(), 2, ncclInt32, ncclSum, comm, where) == ncclInProgress);
      CHECK(nccl().ncclCommCount(comm, &told) == ncclInvalidArgument);
      CHECK(state_of(comm) == ncclSuccess);
    }
    where.wait();
    CHECK(data.all(4));

    ncclComm_t child = comm;
    CHECK(nccl().ncclCommSplit(comm, 0, -rank, &child, nullptr) == ncclSuccess);  // as NCCL does
    CHECK(child == nullptr);
    CHECK(settle(comm) == ncclSuccess);
    REQUIRE(child != nullptr);
    CHECK(nccl().ncclCommUserRank(child, &told) == ncclSuccess);
    CHECK(told == 1 - rank);
    CHECK(nccl().ncclAllReduce(data.get(), data.get(), 2, ncclInt32, ncclSum, child, where) == ncclInProgress);
    CHECK(settle(child) == ncclSuccess);
    where.wait();
    CHECK(data.all(8));
    CHECK(nccl().ncclCommDestroy(child) == ncclSuccess);
    CHECK(nccl().ncclCommDestroy(comm) == ncclSuccess);
  });
  CHECK(fake_cuda::live().communicators == 0);
}

TEST_CASE("fake NCCL: a split takes colors, keys, no color and its own blocking mode") {
  const fake_cuda::install fake;
  const auto id = new_id();
  on_ranks(3, [&](int rank) {
    const auto comm = join(id, rank, 3);
    auto wish = config(false);
    ncclComm_t child = comm;
    CHECK(nccl().ncclCommSplit(comm, rank == 1 ? NCCL_SPLIT_NOCOLOR : 4, 0, &child, &wish) == ncclSuccess);
    CHECK((child == nullptr) == (rank == 1));
    const stream where;
    if (child != nullptr) {
      device_array<int> data(2, 1);
      CHECK(nccl().ncclAllReduce(data.get(), data.get(), 2, ncclInt32, ncclSum, child, where) == ncclInProgress);
      CHECK(settle(child) == ncclSuccess);
      where.wait();
      CHECK(data.all(2));
      CHECK(nccl().ncclCommDestroy(child) == ncclSuccess);
    }
    CHECK(nccl().ncclCommDestroy(comm) == ncclSuccess);
  });
  CHECK(fake_cuda::live().communicators == 0);
}

TEST_CASE("fake NCCL: registrations and windows are counted") {
  const fake_cuda::install fake;
  const auto id = new_id();
  on_ranks(2, [&](int rank) {
    const auto comm = join(id, rank, 2);
    device_array<int> data(8);
    void* registration = nullptr;
    CHECK(nccl().ncclCommRegister(comm, data.get(), 32, &registration) == ncclSuccess);
    CHECK(fake_cuda::live().registrations >= 1);
    CHECK(nccl().ncclCommDeregister(comm, registration) == ncclSuccess);
    CHECK(nccl().ncclCommDeregister(comm, registration) == ncclInvalidArgument);
    ncclWindow_t window = nullptr;
    CHECK(nccl().ncclCommWindowRegister(comm, data.get(), 32, &window, NCCL_WIN_COLL_SYMMETRIC) == ncclSuccess);
    REQUIRE(window != nullptr);
    CHECK(nccl().ncclCommWindowDeregister(comm, window) == ncclSuccess);
    CHECK(nccl().ncclCommWindowDeregister(comm, window) == ncclInvalidArgument);
    CHECK(nccl().ncclCommDestroy(comm) == ncclSuccess);
  });
  CHECK(fake_cuda::live() == fake_cuda::live_objects{});
}

TEST_CASE("fake NCCL: ranks may be processes") {
  const int status = hfcomm::launch(2, [] {
    const fake_cuda::install fake;
    const int rank = hfcomm::rank();
    (void)runtime().cudaSetDevice(rank);
    ncclUniqueId id{};
    (void)nccl().ncclGetUniqueId(&id);
    hfcomm::broadcast(std::span(id.internal), 0);
    ncclComm_t comm = nullptr;
    if (nccl().ncclCommInitRankConfig(&comm, 2, id, rank, nullptr) != ncclSuccess) {
      return 2;
    }
    ncclComm_t child = nullptr;
    if (nccl().ncclCommSplit(comm, 0, 0, &child, nullptr) != ncclSuccess) {
      return 3;
    }
    void* memory = nullptr;
    (void)runtime().cudaMalloc(&memory, 4);
    auto* value = static_cast<int*>(memory);
    *value = rank + 1;
    (void)nccl().ncclAllReduce(value, value, 1, ncclInt32, ncclSum, child, nullptr);
    (void)runtime().cudaStreamSynchronize(nullptr);
    return *value == 3 && nccl().ncclCommDestroy(child) == ncclSuccess && nccl().ncclCommDestroy(comm) == ncclSuccess
               ? 0
               : 4;
  });
  CHECK(status == 0);
}

}  // namespace
