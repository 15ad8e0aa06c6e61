// SPDX-License-Identifier: MIT
// The test double itself: refused calls, hanging calls, and how they end.
#include <doctest/doctest.h>

#include <string>

#include "fake_ranks.hpp"

namespace {

using namespace fake_ranks;

ncclResult_t add_up(const device_array<int>& data, ncclComm_t comm, cudaStream_t where, std::size_t count = 2) {
  return nccl().ncclAllReduce(data.get(), data.get(), count, ncclInt32, ncclSum, comm, where);
}

TEST_CASE("fake NCCL: an operation that one rank does not call spins until it is aborted") {
  for (const bool blocking : {true, false}) {
    const fake_cuda::install fake;
    const auto id = new_id();
    on_ranks(2, [&](int rank) {
      const auto comm = join(id, rank, 2, blocking);
      const stream where;
      device_array<int> data(2, 1);
      if (rank == 0) {
        (void)add_up(data, comm, where);
        CHECK(settle(comm) == ncclSuccess);
        (void)add_up(data, comm, where);
        CHECK(settle(comm) == ncclSuccess);
        CHECK(runtime().cudaStreamQuery(where) == cudaErrorNotReady);
        CHECK(settle(comm) == ncclSuccess);
      }
      CHECK(nccl().ncclCommAbort(comm) == ncclSuccess);
      where.wait();
      CHECK(nccl().ncclCommAbort(comm) == ncclInvalidArgument);
      CHECK(add_up(data, comm, where) == ncclInvalidArgument);
    });
    CHECK(fake_cuda::live().communicators == 0);
  }
}

TEST_CASE("fake NCCL: ranks in different operations spin until they are aborted") {
  const fake_cuda::install fake;
  const auto id = new_id();
  on_ranks(2, [&](int rank) {
    const auto comm = join(id, rank, 2);
    const stream where;
    device_array<int> data(3, 1);
    CHECK(add_up(data, comm, where, rank == 0 ? 2 : 3) == ncclSuccess);
    wait_until([] { return fake_cuda::problems().size() == 2; });
    CHECK(runtime().cudaStreamQuery(where) == cudaErrorNotReady);
    CHECK(state_of(comm) == ncclSuccess);
    CHECK(nccl().ncclCommAbort(comm) == ncclSuccess);
    where.wait();
  });
}

TEST_CASE("fake NCCL: the initialization waits for a rank that does not call it") {
  const fake_cuda::install fake;
  const auto id = new_id();
  SUBCASE("a nonblocking one is aborted") {
    ncclComm_t comm = nullptr;
    auto wish = config(false);
    CHECK(nccl().ncclCommInitRankConfig(&comm, 2, id, 0, &wish) == ncclInProgress);
    for (int poll = 0; poll < 5; ++poll) {
      CHECK(state_of(comm) == ncclInProgress);
    }
    CHECK(nccl().ncclCommDestroy(comm) == ncclInvalidArgument);
    CHECK(nccl().ncclCommAbort(comm) == ncclSuccess);
    CHECK(nccl().ncclCommDestroy(comm) == ncclInvalidArgument);
  }
  SUBCASE("a blocking one is aborted by another thread") {
    const std::jthread other([] {
      wait_until([] { return !fake_cuda::communicators().empty(); });
      CHECK(nccl().ncclCommAbort(fake_cuda::communicators().front()) == ncclSuccess);
    });
    ncclComm_t comm = nullptr;
    CHECK(nccl().ncclCommInitRankConfig(&comm, 2, id, 0, nullptr) == ncclInternalError);
  }
  SUBCASE("the rank may call it later") {
    fake_cuda::hang_init(1);
    on_ranks(2, [&](int rank) {
      ncclComm_t comm = nullptr;
      auto wish = config(false);
      CHECK(nccl().ncclCommInitRankConfig(&comm, 2, id, rank, &wish) == ncclInProgress);
      for (int poll = 0; poll < 5; ++poll) {
        CHECK(state_of(comm) == ncclInProgress);
      }
      if (rank == 0) {
        fake_cuda::release_inits();
      } else {
        wait_until([] { return fake_cuda::communicators().size() == 2; });
      }
      CHECK(settle(comm) == ncclSuccess);
      CHECK(nccl().ncclCommAbort(comm) == ncclSuccess);
    });
  }
  CHECK(fake_cuda::live().communicators == 0);
}

TEST_CASE("fake NCCL: two ranks on one device are an error on both") {
  for (const bool blocking : {true, false}) {
    const fake_cuda::install fake;
    const auto id = new_id();
    on_ranks(2, [&](int rank) {
      REQUIRE(runtime().cudaSetDevice(0) == cudaSuccess);
      ncclComm_t comm = nullptr;
      auto wish = config(blocking);
      const auto begun = nccl().ncclCommInitRankConfig(&comm, 2, id, rank, &wish);
      CHECK(begun == (blocking ? ncclInvalidUsage : ncclInProgress));
      CHECK(settle(comm) == ncclInvalidUsage);
      CHECK(nccl().ncclCommDestroy(comm) == ncclInvalidUsage);
      CHECK(nccl().ncclCommAbort(comm) == ncclSuccess);
    });
  }
}

TEST_CASE("fake NCCL: wrong arguments are errors that leave a blocking communicator usable") {
  const fake_cuda::install fake;
  const auto id = new_id();
  ncclComm_t made = nullptr;
  CHECK(nccl().ncclCommInitRankConfig(&made, 2, id, 2, nullptr) == ncclInvalidArgument);
  CHECK(nccl().ncclCommInitRankConfig(&made, 1, ncclUniqueId{}, 0, nullptr) == ncclInvalidArgument);
  ncclConfig_t none{};
  CHECK(nccl().ncclCommInitRankConfig(&made, 1, id, 0, &none) == ncclInvalidArgument);
  CHECK(nccl().ncclCommDestroy(nullptr) == ncclSuccess);
  CHECK(nccl().ncclGroupEnd() == ncclInvalidUsage);
  on_ranks(2, [&](int rank) {
    const auto comm = join(id, rank, 2);
    const stream where;
    device_array<int> data(2, 1);
    int* const p = data.get();
    CHECK(add_up(data, nullptr, where) == ncclInvalidArgument);
    CHECK(nccl().ncclAllReduce(p, p, 2, ncclNumTypes, ncclSum, comm, where) == ncclInvalidArgument);
    CHECK(nccl().ncclAllReduce(p, p, 2, ncclInt32, ncclNumOps, comm, where) == ncclInvalidArgument);
    CHECK(nccl().ncclAllReduce(nullptr, p, 2, ncclInt32, ncclSum, comm, where) == ncclInvalidArgument);
    CHECK(nccl().ncclAllReduce(p, nullptr, 2, ncclInt32, ncclSum, comm, where) == ncclInvalidArgument);
    CHECK(nccl().ncclBroadcast(p, p, 2, ncclInt32, 2, comm, where) == ncclInvalidArgument);
    CHECK(nccl().ncclSend(p, 1, ncclInt32, -1, comm, where) == ncclInvalidArgument);
    CHECK(nccl().ncclSend(p, 1, ncclInt32, rank, comm, where) == ncclInvalidUsage);
    CHECK(nccl().ncclRecv(p, 1, ncclInt32, rank, comm, where) == ncclInvalidUsage);
    ncclRedOp_t op = ncclSum;
    float factor = 1;
    CHECK(nccl().ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarHostImmediate, comm) == ncclSuccess);
    CHECK(nccl().ncclAllReduce(p, p, 2, ncclInt32, op, comm, where) == ncclInvalidArgument);
    CHECK(std::string(nccl().ncclGetLastError(comm)).find("data type") != std::string::npos);

    // Nothing of a group with a mistake is done.
    CHECK(nccl().ncclGroupStart() == ncclSuccess);
    CHECK(add_up(data, comm, where) == ncclSuccess);
    CHECK(nccl().ncclBroadcast(p, p, 2, ncclInt32, 2, comm, where) == ncclInvalidArgument);
    CHECK(nccl().ncclGroupEnd() == ncclInvalidArgument);
    where.wait();
    CHECK(data.all(1));

    const stream captured;
    fake_cuda::begin_capture(captured);
    CHECK(nccl().ncclGroupStart() == ncclSuccess);
    CHECK(add_up(data, comm, where) == ncclSuccess);
    CHECK(add_up(data, comm, captured) == ncclInvalidUsage);
    CHECK(nccl().ncclGroupEnd() == ncclInvalidUsage);
    CHECK(fake_cuda::end_capture(captured).size() == 0);

    if (rank == 0) {
      CHECK(add_up(data, comm, where, 0) == ncclSuccess);  // dropped: nobody else comes
      where.wait();
    }
    CHECK(add_up(data, comm, where) == ncclSuccess);
    where.wait();
    CHECK(data.all(2));
    CHECK(nccl().ncclCommDestroy(comm) == ncclSuccess);
    CHECK(nccl().ncclCommDestroy(comm) == ncclInvalidArgument);
  });
}

TEST_CASE("fake NCCL: a group cannot mix blocking and nonblocking communicators, and a stream belongs to a device") {
  const fake_cuda::install fake;
  on_ranks(2, [id = new_id(), other_id = new_id()](int rank) {
    const auto comm = join(id, rank, 2, true);
    const auto other = join(other_id, rank, 2, false);
    const stream where;
    device_array<int> data(2, 1);
    CHECK(nccl().ncclGroupStart() == ncclSuccess);
    CHECK(add_up(data, comm, where) == ncclSuccess);
    CHECK(add_up(data, other, where) == ncclInvalidArgument);
    CHECK(nccl().ncclGroupEnd() == ncclInvalidArgument);
    // What was wrong is now that communicator's state.
    CHECK(settle(other) == ncclInvalidArgument);
    CHECK(nccl().ncclCommAbort(other) == ncclSuccess);
    REQUIRE(runtime().cudaSetDevice(1 - rank) == cudaSuccess);
    const stream elsewhere;
    CHECK(add_up(data, comm, elsewhere) == ncclUnhandledCudaError);
    CHECK(nccl().ncclCommAbort(comm) == ncclSuccess);
  });
}

TEST_CASE("fake NCCL: an access outside device memory is counted, and the other ranks continue") {
  const fake_cuda::install fake;
  const auto id = new_id();
  on_ranks(2, [&](int rank) {
    const auto comm = join(id, rank, 2);
    const stream where;
    device_array<int> data(2, 1);
    int on_host[2] = {1, 1};
    int* const p = rank == 0 ? on_host : data.get();
    CHECK(nccl().ncclAllReduce(p, p, 2, ncclInt32, ncclSum, comm, where) == ncclSuccess);
    where.wait();
    CHECK(on_host[0] == 1);
    CHECK(nccl().ncclCommDestroy(comm) == ncclSuccess);
  });
  CHECK(fake_cuda::illegal_accesses() == 2);
}

TEST_CASE("fake NCCL: calls fail on demand") {
  const fake_cuda::install fake;
  const auto id = new_id();
  fake_cuda::set_nccl_version(21805);
  fake_cuda::set_nccl_version(21904, 1);
  fake_cuda::fail_call("ncclAllReduce", 2, ncclSystemError, 1);
  on_ranks(2, [&](int rank) {
    int version = 0;
    CHECK(nccl().ncclGetVersion(&version) == ncclSuccess);
    CHECK(version == (rank == 1 ? 21904 : 21805));
    const auto comm = join(id, rank, 2);
    const stream where;
    device_array<int> data(2, 1);
    CHECK(add_up(data, comm, where) == ncclSuccess);
    where.wait();
    CHECK(add_up(data, comm, where) == (rank == 1 ? ncclSystemError : ncclSuccess));
    CHECK(nccl().ncclCommAbort(comm) == ncclSuccess);
    where.wait();
  });
  CHECK(fake_cuda::calls("ncclAllReduce") == 4);

  const auto comm = join(new_id(), 0, 1);
  fake_cuda::async_error_after(2, ncclRemoteError, 0);
  CHECK(state_of(comm) == ncclSuccess);
  CHECK(state_of(comm) == ncclSuccess);
  CHECK(state_of(comm) == ncclRemoteError);
  CHECK(state_of(comm) == ncclRemoteError);
  int count = 0;
  CHECK(nccl().ncclCommCount(comm, &count) == ncclRemoteError);
}

TEST_CASE("fake NCCL: calls hang on demand") {
  const fake_cuda::install fake;
  const auto comm = join(new_id(), 0, 1);
  const stream where;
  device_array<int> data(2, 1);
  SUBCASE("an operation") {
    fake_cuda::never_complete(0);
    CHECK(add_up(data, comm, where) == ncclSuccess);
    CHECK(runtime().cudaStreamQuery(where) == cudaErrorNotReady);
    CHECK(nccl().ncclCommAbort(comm) == ncclSuccess);
    where.wait();
  }
  SUBCASE("an abort") {
    fake_cuda::hang_abort(0);
    const std::jthread other([&] { CHECK(nccl().ncclCommAbort(comm) == ncclSuccess); });
    wait_until([] { return fake_cuda::hanging() == 1; });
    CHECK(fake_cuda::live().communicators == 1);
    fake_cuda::release_aborts();
  }
  SUBCASE("a destruction") {
    fake_cuda::hang_destroy(0);
    const std::jthread other([&] { CHECK(nccl().ncclCommDestroy(comm) == ncclSuccess); });
    wait_until([] { return fake_cuda::hanging() == 1; });
    fake_cuda::release_destroys();
  }
  SUBCASE("a destruction that waits for an operation, until an abort") {
    fake_cuda::never_complete(0);
    CHECK(add_up(data, comm, where) == ncclSuccess);
    fake_cuda::hang_destroy(0);
    const std::jthread other([&] { CHECK(nccl().ncclCommDestroy(comm) == ncclSuccess); });
    wait_until([] { return fake_cuda::hanging() == 1; });  // it has found the communicator, which the abort removes
    fake_cuda::release_destroys();
    (void)nccl().ncclCommAbort(comm);
  }
}

TEST_CASE("fake NCCL: the end of the fake frees spinning operations") {
  latch done;
  {
    const fake_cuda::install fake;
    const auto comm = join(new_id(), 0, 1);
    fake_cuda::never_complete();
    cudaStream_t where = nullptr;
    REQUIRE(runtime().cudaStreamCreateWithPriority(&where, 0, 0) == cudaSuccess);
    void* memory = nullptr;
    REQUIRE(runtime().cudaMalloc(&memory, 8) == cudaSuccess);
    CHECK(nccl().ncclAllReduce(memory, memory, 2, ncclInt32, ncclSum, comm, where) == ncclSuccess);
    fake_cuda::launch(where, [&] { done.open(); });
  }
  done.wait();
}

}  // namespace
