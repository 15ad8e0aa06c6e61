// SPDX-License-Identifier: MIT
// The backend of torch.distributed. Its ranks are processes, forked before anything of LibTorch runs.
#include "torch_doctest.hpp"

#include <c10/core/InferenceMode.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <stdlib.h>
#include <unistd.h>

#include "../process/processes.hpp"

#include <hfcomm/torch_backend.hpp>

namespace torch_backend_test {

namespace {

using namespace std::chrono_literals;
using hfcomm::torch_backend;
using tensors = std::vector<at::Tensor>;

void require_that(bool condition, const std::string& text) {
  if (!condition) {
    throw std::runtime_error(text);
  }
}

void require_equal(const at::Tensor& got, const at::Tensor& expected, const std::string& text) {
  require_that(got.scalar_type() == expected.scalar_type() && at::equal(got, expected), "wrong result: " + text);
}

/// Returns the text of the exception that `call` throws.
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& problem) {
    return problem.what();
  }
  return "no error";
}

void require_error(const std::string& part, const std::function<void()>& call) {
  const std::string text = error_of(call);
  require_that(text.find(part) != std::string::npos, "expected an error with \"" + part + "\", got: " + text);
}

/// A file for a store, which ends with this object.
class store_file {
 public:
  store_file() {
    const int file = ::mkstemp(path_.data());
    require_that(file >= 0, "no temporary file");
    ::close(file);
  }
  store_file(const store_file&) = delete;
  store_file& operator=(const store_file&) = delete;
  ~store_file() { ::unlink(path_.c_str()); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/hfcomm-torch-XXXXXX";
};

void pass_barrier(torch_backend& backend) { backend.barrier({})->wait(); }

/// Runs `body(backend)`, and then `end(backend)`, on ranks that are processes.
void on_ranks(int size, const std::function<void(torch_backend&)>& body, std::chrono::milliseconds timeout = 30s,
              const std::function<void(torch_backend&)>& end = pass_barrier) {
  const store_file file;
  processes::child_processes children(size, [&](int rank) {
    const auto store = c10::make_intrusive<c10d::FileStore>(file.path(), size);
    const auto backend =
        c10::make_intrusive<torch_backend>(store, rank, size, hfcomm::torch_backend_options{.timeout = timeout});
    body(*backend);
    end(*backend);
  });
  for (const auto& outcome : children.wait(60s)) {
    INFO(outcome.output);
    CHECK(outcome.exited_with(0));
  }
}

at::Tensor filled(double value, at::ScalarType type = at::kFloat) { return at::full({2, 3}, value, type); }

at::Tensor all_reduced(torch_backend& backend, at::Tensor tensor, c10d::ReduceOp op) {
  tensors list{std::move(tensor)};
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  backend.allreduce(list, options)->wait();
  return list[0];
}

c10d::ReduceOp premultiplied_sum(double factor) {
  c10d::ReduceOp op;
  op.op_ = c10d::ReduceOp::PREMUL_SUM;
  op.supplement_ = c10::make_intrusive<c10d::NCCLPreMulSumSupplement>(factor);
  return op;
}

}  // namespace

TEST_CASE("torch_backend: reductions of every kind and type") {
  for (const int size : {2, 3}) {
    on_ranks(size, [size](torch_backend& backend) {
      const double mine = backend.getRank() + 1;
      const double sum = size * (size + 1) / 2.0;
      const double product = size == 2 ? 2 : 6;
      for (const auto type : {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kBFloat16,
                              at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble}) {
        const std::string name = c10::toString(type);
        require_equal(all_reduced(backend, filled(mine, type), c10d::ReduceOp::SUM), filled(sum, type), name + " sum");
        require_equal(all_reduced(backend, filled(mine, type), c10d::ReduceOp::PRODUCT), filled(product, type),
                      name + " product");
        if (!at::isComplexType(type)) {
          require_equal(all_reduced(backend, filled(mine, type), c10d::ReduceOp::MIN), filled(1, type), name + " min");
          require_equal(all_reduced(backend, filled(mine, type), c10d::ReduceOp::MAX), filled(size, type),
                        name + " max");
        }
      }
      require_equal(all_reduced(backend, filled(mine), c10d::ReduceOp::AVG), filled(sum / size), "average");
      const std::int64_t bits[] = {1, 3, 7};
      require_equal(
          all_reduced(backend, filled(static_cast<double>(bits[backend.getRank()]), at::kLong), c10d::ReduceOp::BAND),
          filled(1, at::kLong), "bitwise and");
      require_equal(all_reduced(backend, filled(1 << backend.getRank(), at::kLong), c10d::ReduceOp::BOR),
                    filled((1 << size) - 1, at::kLong), "bitwise or");
      require_equal(all_reduced(backend, filled(1, at::kLong), c10d::ReduceOp::BXOR), filled(size % 2, at::kLong),
                    "bitwise exclusive or");
      require_equal(all_reduced(backend, filled(1), premultiplied_sum(mine)), filled(sum), "premultiplied sum");
      const at::Tensor first = at::full({2}, backend.getRank() == 0, at::kBool);
      require_equal(all_reduced(backend, first.clone(), c10d::ReduceOp::SUM), at::full({2}, true, at::kBool), "any");
      require_equal(all_reduced(backend, first.clone(), c10d::ReduceOp::MIN), at::full({2}, false, at::kBool), "all");
    });
  }
}

TEST_CASE("torch_backend: sparse tensors are summed, whatever entries each rank has") {
  on_ranks(3, [](torch_backend& backend) {
    const int rank = backend.getRank();
    for (const auto type : {at::kFloat, at::kLong}) {
      // Rank r has r rows of two: 0 to r - 1. So rank 0 has none.
      const at::Tensor rows = at::full({rank, 2}, rank, at::dtype(type));
      const at::Tensor mine = at::sparse_coo_tensor(at::arange(rank).unsqueeze(0), rows, {4, 2});
      const at::Tensor sum = all_reduced(backend, mine, c10d::ReduceOp::SUM);
      const at::Tensor expected = at::tensor({3, 3, 2, 2, 0, 0, 0, 0}, at::dtype(type)).reshape({4, 2});
      require_equal(sum.to_dense(), expected, "sparse");
    }
    const at::Tensor other = at::zeros({2 + rank, 2}).to_sparse();
    require_error("sparse all_reduce", [&] { (void)all_reduced(backend, other, c10d::ReduceOp::SUM); });
    require_error("SUM only", [&] { (void)all_reduced(backend, other, c10d::ReduceOp::MAX); });
    require_equal(all_reduced(backend, filled(1), c10d::ReduceOp::SUM), filled(3), "after errors");
  });
}

TEST_CASE("torch_backend: sparse tensors of 16 bits and of bools are added up, too") {
  on_ranks(3, [](torch_backend& backend) {
    const int rank = backend.getRank();
    for (const auto type : {at::kHalf, at::kBFloat16}) {
      // The sum is 1 + 2 times half a step: added up with 16 bits it would stay 1.
      const double step = type == at::kHalf ? 0x1p-10 : 0x1p-7;
      const at::Tensor values = at::full({1}, rank == 0 ? 1.0 : step / 2, at::dtype(type));
      const at::Tensor mine = at::sparse_coo_tensor(at::full({1, 1}, 2, at::kLong), values, {4});
      const at::Tensor sum = all_reduced(backend, mine, c10d::ReduceOp::SUM);
      require_equal(sum._values(), at::full({1}, 1 + step, at::dtype(type)), std::string("sparse ") + toString(type));
    }
    const at::Tensor any = all_reduced(
        backend, at::sparse_coo_tensor(at::full({1, 1}, rank % 2, at::kLong), at::full({1}, rank != 1, at::kBool), {2}),
        c10d::ReduceOp::SUM);
    require_equal(any._values(), at::tensor({1, 0}).to(at::kBool), "sparse bools");
  });
}

TEST_CASE("torch_backend: broadcast, reduce, gather and scatter have any root") {
  on_ranks(3, [](torch_backend& backend) {
    const int rank = backend.getRank();
    for (int root = 0; root < 3; ++root) {
      tensors data{filled(rank)};
      c10d::BroadcastOptions broadcast;
      broadcast.rootRank = root;
      backend.broadcast(data, broadcast)->wait();
      require_equal(data[0], filled(root), "broadcast");

      tensors summand{filled(rank + 1)};
      c10d::ReduceOptions reduce;
      reduce.rootRank = root;
      backend.reduce(summand, reduce)->wait();
      require_equal(summand[0], filled(rank == root ? 6 : rank + 1), "reduce");

      tensors in{filled(rank)};
      std::vector<tensors> gathered;
      if (rank == root) {
        gathered = {{filled(9), filled(9), filled(9)}};
      }
      c10d::GatherOptions gather;
      gather.rootRank = root;
      backend.gather(gathered, in, gather)->wait();
      for (int source = 0; rank == root && source < 3; ++source) {
        require_equal(gathered[0][static_cast<std::size_t>(source)], filled(source), "gather");
      }

      tensors out{filled(9)};
      std::vector<tensors> scattered;
      if (rank == root) {
        scattered = {{filled(10), filled(11), filled(12)}};
      }
      c10d::ScatterOptions scatter;
      scatter.rootRank = root;
      backend.scatter(out, scattered, scatter)->wait();
      require_equal(out[0], filled(10 + rank), "scatter");
    }
  });
}

TEST_CASE("torch_backend: all forms of all_gather and reduce_scatter") {
  on_ranks(3, [](torch_backend& backend) {
    const int rank = backend.getRank();
    tensors in{filled(rank)};
    std::vector<tensors> lists{{filled(9), filled(9), filled(9)}};
    backend.allgather(lists, in, {})->wait();
    at::Tensor table = at::empty({6, 3});
    backend._allgather_base(table, in[0], {})->wait();
    std::vector<tensors> coalesced;
    for (int source = 0; source < 3; ++source) {
      coalesced.push_back({filled(9), at::zeros({}, at::kLong)});
    }
    tensors several{filled(rank), at::full({}, rank + 5, at::kLong)};
    backend.allgather_coalesced(coalesced, several, {})->wait();
    for (int source = 0; source < 3; ++source) {
      const auto index = static_cast<std::size_t>(source);
      require_equal(lists[0][index], filled(source), "allgather");
      require_equal(table.narrow(0, 2 * source, 2), filled(source), "_allgather_base");
      require_equal(coalesced[index][0], filled(source), "allgather_coalesced");
      require_equal(coalesced[index][1], at::full({}, source + 5, at::kLong), "allgather_coalesced, second");
    }

    tensors out{filled(9)};
    std::vector<tensors> inputs{{filled(rank), filled(rank + 1), filled(rank + 2)}};
    backend.reduce_scatter(out, inputs, {})->wait();
    require_equal(out[0], filled(3 + 3 * rank), "reduce_scatter");
    at::Tensor part = filled(9);
    at::Tensor whole = at::cat(inputs[0]);
    backend._reduce_scatter_base(part, whole, {})->wait();
    require_equal(part, filled(3 + 3 * rank), "_reduce_scatter_base");
  });
}

TEST_CASE("torch_backend: lists are gathered into and scattered from whole tensors") {
  on_ranks(3, [](torch_backend& backend) {
    const int rank = backend.getRank();
    tensors whole{at::empty({6, 3}, at::kLong), at::empty({2, 3}, at::kLong).t()};  // one that is not contiguous
    tensors mine{filled(rank, at::kLong), at::full({2}, rank + 5, at::kLong)};
    backend.allgather_into_tensor_coalesced(whole, mine, {})->wait();
    require_equal(whole[0], at::cat({filled(0, at::kLong), filled(1, at::kLong), filled(2, at::kLong)}), "first");
    require_equal(whole[1], at::arange(5, 8).unsqueeze(1).expand({3, 2}), "second");

    tensors parts{filled(9, at::kLong), at::empty({2}, at::kLong)};
    backend.reduce_scatter_tensor_coalesced(parts, whole, {})->wait();
    require_equal(parts[0], filled(3 * rank, at::kLong), "first part");
    require_equal(parts[1], at::full({2}, 3 * (rank + 5), at::kLong), "second part");

    tensors short_list{mine[0]};
    require_error("lists of 2 and 1 tensors", [&] { backend.allgather_into_tensor_coalesced(whole, short_list, {}); });
    tensors twice{mine[0], mine[0]};
    require_error("not 3 times", [&] { backend.reduce_scatter_tensor_coalesced(twice, whole, {}); });
    tensors mixed{mine[0], filled(1)};
    require_error("several types", [&] { backend.allgather_into_tensor_coalesced(whole, mixed, {}); });
  });
}

TEST_CASE("torch_backend: all_to_all of equal rows, of split sizes, and of lists") {
  on_ranks(3, [](torch_backend& backend) {
    const int rank = backend.getRank();
    std::vector<std::int64_t> none;
    at::Tensor in = at::arange(3) + 10 * rank;
    at::Tensor out = at::zeros({3}, at::kLong);
    backend.alltoall_base(out, in, none, none, {})->wait();
    require_equal(out, at::arange(3) * 10 + rank, "equal rows");

    // Rank r sends s + 1 rows of two to rank s.
    std::vector<std::int64_t> in_splits{1, 2, 3};
    std::vector<std::int64_t> out_splits(3, rank + 1);
    at::Tensor rows = at::full({6, 2}, double(rank));
    at::Tensor received = at::zeros({3 * (rank + 1), 2});
    backend.alltoall_base(received, rows, out_splits, in_splits, {})->wait();
    for (int source = 0; source < 3; ++source) {
      require_equal(received.narrow(0, source * (rank + 1), rank + 1), at::full({rank + 1, 2}, double(source)), "rows");
    }

    tensors from{filled(3 * rank), filled(3 * rank + 1), filled(3 * rank + 2)};
    tensors to{filled(99), filled(99), filled(99)};
    backend.alltoall(to, from, {})->wait();
    for (int source = 0; source < 3; ++source) {
      require_equal(to[static_cast<std::size_t>(source)], filled(3 * source + rank), "lists");
    }
    at::Tensor four = at::zeros({4, 1}, at::kLong);
    require_error("split equally", [&] { backend.alltoall_base(out, four, none, none, {}); });
  });
}

TEST_CASE("torch_backend: tensors that are not contiguous or share memory are copied") {
  on_ranks(2, [](torch_backend& backend) {
    const at::Tensor whole = at::zeros({3, 4});
    const at::Tensor column = whole.select(1, 2);
    column.copy_(at::arange(3) * (backend.getRank() + 1));
    (void)all_reduced(backend, column, c10d::ReduceOp::SUM);
    at::Tensor expected = at::zeros({3, 4});
    expected.select(1, 2).copy_(at::arange(3) * 3);
    require_equal(whole, expected, "a column");

    const at::Tensor shared = filled(1);
    tensors twice{shared, shared, filled(2)};
    backend.allreduce_coalesced(twice, {})->wait();
    require_equal(shared, filled(2), "a tensor that is twice in a list");
    require_equal(twice[2], filled(4), "the other one");

    at::Tensor out = at::zeros({3, 4}).t();
    at::Tensor in = at::arange(6).to(at::kFloat).reshape({3, 2}).t() + backend.getRank();
    backend._allgather_base(out, in, {})->wait();
    require_equal(out, at::cat({in - backend.getRank(), in - backend.getRank() + 1}), "transposed");
  });
}

TEST_CASE("torch_backend: messages have tags, an unknown sender is told, and a receive can be withdrawn") {
  on_ranks(3, [](torch_backend& backend) {
    const int rank = backend.getRank();
    if (rank == 0) {
      tensors one{filled(0)};
      tensors two{filled(0)};
      const auto second = backend.recv(two, 1, 2);
      const auto first = backend.recv(one, 1, 1);
      first->wait();
      second->wait();
      require_equal(one[0], filled(11), "tag 1");
      require_equal(two[0], filled(12), "tag 2");
      tensors any{filled(0)};
      const auto work = backend.recvAnysource(any, 3);
      work->wait();
      require_that(work->sourceRank() == 2, "a wrong sender");
      require_equal(any[0], filled(22), "any sender");

      const auto pending = backend.recv(any, 1, 4);
      pending->abort();
      require_that(!pending->wait(), "the receive was not withdrawn");
      require_that(pending->isCompleted() && !pending->isSuccess(), "a withdrawn receive is no success");
      (void)backend.recv(any, 1, 5);  // nobody sends it: the end of the group withdraws it
    } else if (rank == 1) {
      tensors one{filled(11)};
      tensors two{filled(12)};
      const auto first = backend.send(one, 0, 1);
      const auto second = backend.send(two, 0, 2);
      first->wait();
      second->wait();
    } else {
      tensors any{filled(22)};
      backend.send(any, 0, 3)->wait();
    }
  });
}

TEST_CASE("torch_backend: works complete their futures, in any number, also where nobody keeps them") {
  on_ranks(2, [](torch_backend& backend) {
    std::vector<at::Tensor> results;
    std::vector<c10::intrusive_ptr<c10::ivalue::Future>> futures;
    for (int turn = 0; turn < 50; ++turn) {
      tensors data{filled(turn)};
      results.push_back(data[0]);
      const auto work = backend.allreduce(data, {});
      if (turn % 2 == 0) {
        futures.push_back(work->getFuture()->then(
            [turn](c10::ivalue::Future& done) {
              require_equal(done.value().toTensorVector()[0], filled(2 * turn), "in the future");
              return c10::IValue(turn);
            },
            c10::IntType::get()));
      }
    }
    backend.barrier({})->wait();
    for (int turn = 0; turn < 50; ++turn) {
      require_equal(results[static_cast<std::size_t>(turn)], filled(2 * turn), "started");
    }
    for (std::size_t index = 0; index < futures.size(); ++index) {
      futures[index]->waitAndThrow();
      require_that(futures[index]->value().toInt() == static_cast<std::int64_t>(2 * index), "a wrong value");
    }
    require_that(backend.getSequenceNumberForGroup() == 51, "a wrong sequence number");
  });
}

TEST_CASE("torch_backend: a callback that throws does not concern later operations") {
  on_ranks(2, [](torch_backend& backend) {
    tensors data{filled(1)};
    const auto work = backend.allreduce(data, {});
    try {
      work->getFuture()->addCallback(
          [](c10::ivalue::Future& /*done*/) { throw std::runtime_error("a callback's error"); });
    } catch (const std::runtime_error&) {
      // The work was done already: then LibTorch calls it here.
    }
    work->wait();
    require_equal(data[0], filled(2), "the operation itself");
    for (int turn = 0; turn < 10; ++turn) {
      require_equal(all_reduced(backend, filled(1), c10d::ReduceOp::SUM), filled(2), "a later operation");
    }
  });
}

TEST_CASE("torch_backend: after a deadline of wait the work goes on, and another wait gets its result") {
  on_ranks(2, [](torch_backend& backend) {
    tensors signal{filled(0)};
    tensors data{filled(1)};
    if (backend.getRank() == 1) {
      backend.recv(signal, 0, 0)->wait();
      backend.allreduce(data, {})->wait();
    } else {
      const auto work = backend.allreduce(data, {});
      require_error("Timed out waiting 50 ms", [&] { work->wait(50ms); });
      require_that(!work->isCompleted(), "it cannot be done");
      backend.send(signal, 1, 0)->wait();
      require_that(work->wait(), "the second wait failed");
    }
    require_equal(data[0], filled(2), "after the deadline");
  });
}

TEST_CASE("torch_backend: abort ends a wait of another thread") {
  on_ranks(2, [](torch_backend& backend) {
    if (backend.getRank() == 0) {
      tensors data{filled(0)};
      const auto work = backend.recv(data, 1, 7);
      std::atomic<bool> has_result = true;
      std::thread waiter([&] { has_result = work->wait(); });
      std::this_thread::sleep_for(50ms);
      work->abort();
      waiter.join();
      require_that(!has_result, "an aborted receive has no result");
    }
    require_equal(all_reduced(backend, filled(1), c10d::ReduceOp::SUM), filled(2), "after the abort");
  });
}

TEST_CASE("torch_backend: messages of four threads reach those of the same tag") {
  on_ranks(2, [](torch_backend& backend) {
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (int tag = 0; tag < 4; ++tag) {
      threads.emplace_back([&backend, &wrong, tag] {
        const std::string problem = error_of([&] {
          const int other = 1 - backend.getRank();
          for (int turn = 0; turn < 50; ++turn) {
            tensors out{filled(100 * tag + turn + 1000 * backend.getRank())};
            tensors in{filled(-1)};
            const auto sent = backend.send(out, other, tag);
            backend.recv(in, other, tag)->wait();
            sent->wait();
            require_equal(in[0], filled(100 * tag + turn + 1000 * other), "message");
          }
        });
        wrong += problem == "no error" ? 0 : 1;
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    require_that(wrong == 0, "messages were lost or mixed up");
  });
}

TEST_CASE("torch_backend: a rank that leaves completes the collectives that it started") {
  on_ranks(
      2,
      [](torch_backend& backend) {
        tensors data{filled(1)};
        if (backend.getRank() == 1) {
          (void)backend.allreduce(data, {});
          (void)backend.recv(data, 0, 3);  // never sent
          backend.close();
          require_equal(data[0], filled(2), "closed");
        } else {
          std::this_thread::sleep_for(50ms);
          backend.allreduce(data, {})->wait();
          require_equal(data[0], filled(2), "the other rank");
        }
      },
      30s, [](torch_backend& /*backend*/) {});
}

TEST_CASE("torch_backend: a collective that another rank never joins ends with an error that names it") {
  on_ranks(
      2,
      [](torch_backend& backend) {
        if (backend.getRank() == 0) {
          tensors data{filled(1)};
          const auto work = backend.allreduce(data, {});
          const auto receive = backend.recv(data, 1, 3);
          const auto before = std::chrono::steady_clock::now();
          require_error("rank 1", [&] { work->wait(); });
          require_error("rank 1", [&] { receive->wait(); });
          require_that(std::chrono::steady_clock::now() - before < 20s, "it took the deadline");
        }
        backend.close();
      },
      30s, [](torch_backend& /*backend*/) {});
}

TEST_CASE("torch_backend: tensors without elements pass through every operation") {
  on_ranks(2, [](torch_backend& backend) {
    const int other = 1 - backend.getRank();
    const auto none = [] { return at::empty({0, 3}); };
    tensors one{none()};
    tensors two{none(), none()};
    tensors received{none()};
    std::vector<tensors> list{{none(), none()}};
    std::vector<tensors> rooted;
    if (backend.getRank() == 0) {
      rooted = list;
    }
    at::Tensor in = none();
    at::Tensor out = none();
    std::vector<std::int64_t> splits;
    std::vector<tensors> coalesced{{none()}, {none()}};
    const std::vector<torch_backend::work_ptr> works{backend.broadcast(one, {}),
                                                     backend.allreduce(one, {}),
                                                     backend.allreduce_coalesced(two, {}),
                                                     backend.reduce(one, {}),
                                                     backend.allgather(list, one, {}),
                                                     backend._allgather_base(out, in, {}),
                                                     backend.allgather_coalesced(coalesced, one, {}),
                                                     backend.gather(rooted, one, {}),
                                                     backend.scatter(one, rooted, {}),
                                                     backend.reduce_scatter(one, list, {}),
                                                     backend._reduce_scatter_base(out, in, {}),
                                                     backend.alltoall_base(out, in, splits, splits, {}),
                                                     backend.alltoall(two, list[0], {}),
                                                     backend.send(one, other, 0),
                                                     backend.recv(received, other, 0)};
    for (const auto& work : works) {
      require_that(work->wait(), "an operation failed");
    }
    require_equal(all_reduced(backend, filled(1), c10d::ReduceOp::SUM), filled(2), "afterwards");
  });
}

TEST_CASE("torch_backend: a work that is completed has a completed future") {
  on_ranks(2, [](torch_backend& backend) {
    int early = 0;
    for (int turn = 0; turn < 2000; ++turn) {
      tensors data{filled(turn)};
      const auto work = backend.allreduce(data, {});
      while (!work->isCompleted()) {
        std::this_thread::yield();
      }
      early += work->getFuture()->completed() ? 0 : 1;
    }
    require_that(early == 0, std::to_string(early) + " futures are not completed");
  });
}

TEST_CASE("torch_backend: closing waits for the callbacks of what was started, and ends the group") {
  on_ranks(
      2,
      [](torch_backend& backend) {
        backend.barrier({})->wait();
        std::atomic<int> called = 0;
        for (int turn = 0; turn < 20; ++turn) {
          tensors data{filled(turn)};
          backend.allreduce(data, {})->getFuture()->addCallback([&called](c10::ivalue::Future& /*done*/) {
            std::this_thread::sleep_for(2ms);
            ++called;
          });
        }
        backend.close();
        require_that(called == 20, std::to_string(called) + " callbacks were called");
        require_error("was closed", [&] { (void)all_reduced(backend, filled(1), c10d::ReduceOp::SUM); });
      },
      30s, [](torch_backend& /*backend*/) {});
}

TEST_CASE("torch_backend: tensors of inference mode, and such as can only be read") {
  on_ranks(2, [](torch_backend& backend) {
    {
      const c10::InferenceMode mode;
      const at::Tensor transposed = at::ones({3, 2}).t();
      (void)all_reduced(backend, transposed, c10d::ReduceOp::SUM);
      require_equal(transposed, at::full({2, 3}, 2.0), "transposed");
      const at::Tensor sparse = at::ones({3}).to_sparse();
      (void)all_reduced(backend, sparse, c10d::ReduceOp::SUM);
      require_equal(sparse.to_dense(), at::full({3}, 2.0), "sparse");
    }
    const at::Tensor expanded = at::full({1}, 3.0).expand({4});
    tensors data{backend.getRank() == 0 ? expanded : at::zeros({4})};
    backend.broadcast(data, {})->wait();
    require_equal(data[0], at::full({4}, 3.0), "broadcast");
    tensors summand{backend.getRank() == 0 ? at::full({4}, 3.0) : expanded};
    backend.reduce(summand, {})->wait();
    require_equal(summand[0], at::full({4}, backend.getRank() == 0 ? 6.0 : 3.0), "reduce");
  });
}

TEST_CASE("torch_backend: memory that elements share is refused before the operation, where it would be written") {
  on_ranks(2, [](torch_backend& backend) {
    const int rank = backend.getRank();
    const auto expanded = [] { return at::full({1}, 3.0).expand({4}); };
    const auto check_refused = [](const std::function<void()>& call) {
      require_error("elements of the tensor share", call);
    };
    tensors one{expanded()};
    tensors whole{at::zeros({4})};
    tensors mixed{at::zeros({4}), expanded()};
    std::vector<tensors> list{mixed};
    std::vector<tensors> lists{whole, one};
    at::Tensor table = at::full({1}, 3.0).expand({8});
    check_refused([&] { backend.allreduce(one, {}); });
    check_refused([&] { backend.allreduce_coalesced(mixed, {}); });
    check_refused([&] { backend.allgather(list, whole, {}); });
    check_refused([&] { backend._allgather_base(table, whole[0], {}); });
    check_refused([&] { backend.allgather_coalesced(lists, whole, {}); });
    tensors table_list{table};
    tensors eight{at::zeros({8})};
    check_refused([&] { backend.allgather_into_tensor_coalesced(table_list, whole, {}); });
    check_refused([&] { backend.reduce_scatter_tensor_coalesced(one, eight, {}); });
    check_refused([&] { backend.recv(one, 1 - rank, 0); });
    check_refused([&] { backend.recvAnysource(one, 0); });
    c10d::BroadcastOptions from_other;
    from_other.rootRank = 1 - rank;
    check_refused([&] { backend.broadcast(one, from_other); });
    require_equal(all_reduced(backend, filled(1), c10d::ReduceOp::SUM), filled(2), "after errors");
  });
}

TEST_CASE("torch_backend: errors say what is wrong, and the group goes on") {
  on_ranks(2, [](torch_backend& backend) {
    const int rank = backend.getRank();
    require_error("average", [&] { (void)all_reduced(backend, filled(1, at::kLong), c10d::ReduceOp::AVG); });
    require_error("the average of bool elements is not defined",
                  [&] { (void)all_reduced(backend, filled(1, at::kBool), c10d::ReduceOp::AVG); });
    tensors sparse{filled(1).to_sparse()};
    require_error("sparse", [&] { backend.broadcast(sparse, {}); });
    tensors two{filled(1), filled(2)};
    require_error("a process has one", [&] { backend.allreduce(two, {}); });
    tensors one{filled(1)};
    require_error("the destination -1 is no rank", [&] { backend.send(one, -1, 0); });
    require_error("the source -1 is no rank", [&] { backend.recv(one, -1, 0); });
    tensors mine{at::zeros({2 + rank})};
    const auto work = backend.broadcast(mine, {});
    const std::string mismatch = error_of([&] { work->wait(); });
    require_that(mismatch.find("broadcast") != std::string::npos, "expected the operation in: " + mismatch);
    require_that(mismatch.find(".hpp:") == std::string::npos, "expected no line of hfcomm's own in: " + mismatch);
    require_that(work->isCompleted() && !work->isSuccess(), "an error is no success");
    require_that(work->getFuture()->hasError(), "the future has no error");
    require_equal(all_reduced(backend, filled(1), c10d::ReduceOp::SUM), filled(2), "after errors");
  });
}

TEST_CASE("torch_backend: a monitored barrier names the missing ranks, and the group goes on") {
  on_ranks(3, [](torch_backend& backend) {
    c10d::BarrierOptions options;
    options.timeout = 20s;
    backend.monitoredBarrier(options, false);
    backend.monitoredBarrier(options, true);
    options.timeout = 200ms;
    if (backend.getRank() == 0) {
      require_error("Rank 1 failed to pass monitoredBarrier in 200 ms",
                    [&] { backend.monitoredBarrier(options, false); });
      require_error("Ranks 1, 2 failed to pass monitoredBarrier", [&] { backend.monitoredBarrier(options, true); });
    }
    require_equal(all_reduced(backend, filled(1), c10d::ReduceOp::SUM), filled(3), "after the barrier");
  });
}

TEST_CASE("torch_backend: a monitored barrier leaves no keys in the store, also of several threads") {
  const store_file file;
  processes::child_processes children(3, [&](int rank) {
    const auto store = c10::make_intrusive<c10d::FileStore>(file.path(), 3);
    torch_backend backend(store, rank, 3, {.timeout = 30s});
    pass_barrier(backend);
    const auto keys = store->getNumKeys();
    pass_barrier(backend);
    for (int turn = 0; turn < 3; ++turn) {
      backend.monitoredBarrier({}, false);
    }
    std::vector<std::thread> threads;
    for (int number = 0; number < 4; ++number) {
      threads.emplace_back([&] { backend.monitoredBarrier({}, false); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    pass_barrier(backend);
    const auto left = store->getNumKeys() - keys;
    pass_barrier(backend);  // a store that ends sets a key
    require_that(left == 0, std::to_string(left) + " keys are left");
  });
  for (const auto& outcome : children.wait(60s)) {
    INFO(outcome.output);
    CHECK(outcome.exited_with(0));
  }
}

TEST_CASE("torch_backend: a deadline is an error that says Timed out") {
  const store_file file;
  processes::child_processes children(2, [&](int rank) {
    const auto store = c10::make_intrusive<c10d::FileStore>(file.path(), 2);
    torch_backend backend(store, rank, 2);
    if (rank == 0) {
      c10d::BarrierOptions options;
      options.timeout = 100ms;
      require_error(" Timed out ", [&] { backend.barrier(options)->wait(); });
      store->set("done", std::vector<std::uint8_t>{1});
    }
    store->wait({"done"});
  });
  for (const auto& outcome : children.wait(60s)) {
    INFO(outcome.output);
    CHECK(outcome.exited_with(0));
  }
}

TEST_CASE("torch_backend: a group is split, and has the time limit that is set") {
  const store_file file;
  processes::child_processes children(3, [&](int rank) {
    const auto store = c10::make_intrusive<c10d::FileStore>(file.path(), 3);
    const auto named = [&](const char* name) { return c10::make_intrusive<c10d::PrefixStore>(name, store); };
    torch_backend all(named("all"), rank, 3);
    all.setTimeout(20s);
    const auto options = all.getBackendOptions();
    require_that(options->backend == "hfcomm" && options->timeout == 20s, "the options are not those of the group");
    const auto pair = all.split(named("pair"), {2, 0}, options);
    require_that((pair != nullptr) == (rank != 1), "a group of others is not null");
    if (pair != nullptr) {
      require_that(pair->getSize() == 2 && pair->getRank() == (rank == 2 ? 0 : 1), "another order of ranks");
      tensors list{filled(rank)};
      pair->broadcast(list, {})->wait();
      require_equal(list[0], filled(2), "broadcast in the pair");
    }
    all.barrier({})->wait();
    if (rank == 0) {
      all.setTimeout(100ms);
      require_error("Timed out", [&] { all.barrier({})->wait(); });
      store->set("done", std::vector<std::uint8_t>{1});
    }
    store->wait({"done"});
  });
  for (const auto& outcome : children.wait(60s)) {
    INFO(outcome.output);
    CHECK(outcome.exited_with(0));
  }
}

TEST_CASE("torch_backend: several groups live side by side, made by their members only") {
  const store_file file;
  processes::child_processes children(3, [&](int rank) {
    const auto store = c10::make_intrusive<c10d::FileStore>(file.path(), 3);
    const auto named = [&](const char* name) { return c10::make_intrusive<c10d::PrefixStore>(name, store); };
    torch_backend all(named("all"), rank, 3);
    {
      torch_backend one_more(named("again"), rank, 3);
      require_equal(all_reduced(one_more, filled(1), c10d::ReduceOp::SUM), filled(3), "a second group of all");
    }
    if (rank > 0) {
      torch_backend pair(named("pair"), rank - 1, 2);
      require_equal(all_reduced(pair, filled(rank), c10d::ReduceOp::SUM), filled(3), "a pair");
    }
    require_equal(all_reduced(all, filled(1), c10d::ReduceOp::SUM), filled(3), "all");
  });
  for (const auto& outcome : children.wait(60s)) {
    INFO(outcome.output);
    CHECK(outcome.exited_with(0));
  }
}

TEST_CASE("torch_backend: a machine has its host's name where its boot has no number that can be read") {
  std::string host(256, '\0');
  REQUIRE(::gethostname(host.data(), host.size()) == 0);
  const std::string name = hfcomm::torch_backend_detail::machine_name("/nowhere");
  CHECK(name.starts_with(std::string("host ") + host.c_str() + '/'));
  CHECK(hfcomm::torch_backend_detail::machine_name() != name);
}

TEST_CASE("torch_backend: one group after another in the same store") {
  const store_file file;
  processes::child_processes children(2, [&](int rank) {
    const auto store = c10::make_intrusive<c10d::FileStore>(file.path(), 2);
    for (int turn = 0; turn < 3; ++turn) {
      torch_backend backend(store, rank, 2, {.timeout = 10s});
      require_equal(all_reduced(backend, filled(1), c10d::ReduceOp::SUM), filled(2), "sum");
      c10d::BarrierOptions options;
      options.timeout = 10s;
      const auto before = std::chrono::steady_clock::now();
      if (rank == 1) {
        std::this_thread::sleep_for(100ms);
      }
      backend.monitoredBarrier(options, false);
      require_that(std::chrono::steady_clock::now() - before >= 50ms, "the barrier did not wait");
      backend.barrier({})->wait();
    }
  });
  for (const auto& outcome : children.wait(60s)) {
    INFO(outcome.output);
    CHECK(outcome.exited_with(0));
  }
}

TEST_CASE("torch_backend: a rank that does not come is named after the time-out") {
  const store_file file;
  processes::child_processes children(1, [&](int rank) {
    const auto store = c10::make_intrusive<c10d::FileStore>(file.path(), 2);
    require_error("Timed out: rank 1 did not come to make the process group within 1000 ms",
                  [&] { const torch_backend backend(store, rank, 2, {.timeout = 1s}); });
  });
  for (const auto& outcome : children.wait(30s)) {
    INFO(outcome.output);
    CHECK(outcome.exited_with(0));
  }
}

/// A store whose server is gone.
struct lost_store final : c10d::FileStore {
  using FileStore::FileStore;
  void set(const std::string& /*key*/, const std::vector<std::uint8_t>& /*value*/) override {
    throw std::runtime_error("Connection reset by peer");
  }
  bool check(const std::vector<std::string>& /*keys*/) override {
    throw std::runtime_error("Connection reset by peer");
  }
};

TEST_CASE(
    "torch_backend: a store that fails while the machines find each other is an engine_error, as of any exchange") {
  const store_file file;
  processes::child_processes children(1, [&](int /*rank*/) {
    hfcomm::torch_backend_detail::exchange_in_store exchange(c10::make_intrusive<lost_store>(file.path(), 1));
    const auto require_engine_error = [](const std::function<void()>& call) {
      try {
        call();
      } catch (const hfcomm::engine_error& problem) {
        require_error("the store of torch.distributed failed: Connection reset", [&] { throw problem; });
        return;
      }
      throw std::runtime_error("no error");
    };
    require_engine_error([&] { exchange.publish({.hosts = {"127.0.0.1"}, .ports = {1}, .nonce = "a"}); });
    exchange.look_up();
    require_engine_error([&] { (void)exchange.is_done(); });
    require_engine_error([&] { exchange.refresh(); });
  });
  for (const auto& outcome : children.wait(30s)) {
    INFO(outcome.output);
    CHECK(outcome.exited_with(0));
  }
}

}  // namespace torch_backend_test
