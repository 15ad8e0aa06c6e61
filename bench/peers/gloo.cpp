// SPDX-License-Identifier: MIT
// Gloo's ranks for bench/compare: a full mesh of TCP connections over the loopback interface, which is what Gloo has on
// one machine, or over the interface $BENCH_INTERFACE; and for each size the algorithm that is faster on one machine.

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include "../compared_operations.hpp"

namespace {

std::shared_ptr<gloo::rendezvous::Context>& context() {
  static std::shared_ptr<gloo::rendezvous::Context> all;
  return all;
}

struct library {
  template <class T>
  using buffer = std::vector<T>;

  static void barrier() {
    gloo::BarrierOptions options(context());
    gloo::barrier(options);
  }
  static void broadcast(std::span<float> data, int root) {
    gloo::BroadcastOptions options(context());
    options.setOutput(data.data(), data.size());
    options.setRoot(root);
    gloo::broadcast(options);
  }
  static void all_gather(std::span<const float> in, std::span<float> out) {
    gloo::AllgatherOptions options(context());
    options.setInput(const_cast<float*>(in.data()), in.size());
    options.setOutput(out.data(), out.size());
    gloo::allgather(options);
  }
  static void gather(std::span<const float> in, std::span<float> out, int root) {
    gloo::GatherOptions options(context());
    options.setInput(const_cast<float*>(in.data()), in.size());
    if (context()->rank == root) {
      options.setOutput(out.data(), out.size());
    }
    options.setRoot(root);
    gloo::gather(options);
  }
  static void scatter(std::span<const float> in, std::span<float> out, int root) {
    gloo::ScatterOptions options(context());
    if (context()->rank == root) {
      std::vector<float*> parts;
      for (std::size_t begin = 0; begin < in.size(); begin += out.size()) {
        parts.push_back(const_cast<float*>(in.data()) + begin);
      }
      options.setInputs(parts, out.size());
    }
    options.setOutput(out.data(), out.size());
    options.setRoot(root);
    gloo::scatter(options);
  }
  static void reduce(std::span<const float> in, std::span<float> out, int root) {
    const bool receives = context()->rank == root;
    static std::vector<float> room;  // ranks that get nothing need it, too
    room.resize(receives ? 0 : std::max(room.size(), in.size()));
    gloo::ReduceOptions options(context());
    options.setInput(const_cast<float*>(in.data()), in.size());
    options.setOutput(receives ? out.data() : room.data(), in.size());
    options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
    options.setRoot(root);
    gloo::reduce(options);
  }
  static void send(std::span<const float> data, int rank) {
    const auto buffer = context()->createUnboundBuffer(const_cast<float*>(data.data()), data.size_bytes());
    buffer->send(rank, 0);
    buffer->waitSend();
  }
  static void receive(std::span<float> data, int rank) {
    const auto buffer = context()->createUnboundBuffer(data.data(), data.size_bytes());
    buffer->recv(rank, 0);
    buffer->waitRecv();
  }
  static void all_to_all(std::span<const float> in, std::span<float> out) {
    gloo::AlltoallOptions options(context());
    options.setInput(const_cast<float*>(in.data()), in.size());
    options.setOutput(out.data(), out.size());
    gloo::alltoall(options);
  }
  template <class T>
  static void all_reduce_in_place(std::span<T> data) {
    gloo::AllreduceOptions options(context());
    options.setAlgorithm(data.size_bytes() <= 65536 ? gloo::AllreduceOptions::Algorithm::BCUBE
                                                    : gloo::AllreduceOptions::Algorithm::RING);
    options.setOutput(data.data(), data.size());
    options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
  }
};

int run_rank(int rank, int size) {
  bench::worker worker(rank, size, false);  // it has a thread of its own that needs a core, too
  gloo::transport::tcp::attr address;
  // By its name: the host's own name may lead to 127.0.1.1, which other machines cannot reach.
  const char* interface = std::getenv("BENCH_INTERFACE");
  address.iface = interface != nullptr ? interface : "lo";
  auto device = gloo::transport::tcp::CreateDevice(address);
  gloo::rendezvous::FileStore store(std::string(std::getenv("BENCH_JOB")) + "/gloo");
  context() = std::make_shared<gloo::rendezvous::Context>(rank, size);
  context()->connectFullMesh(store, device);
  bench::compared_operations all;
  bench::add_barrier<library>(all, worker.others());
  const bench::span_operations<library> spans(worker.others());
  bench::add(all, "ordinary", "float32", spans.broadcast<float>("float32"));
  bench::add(all, "ordinary", "float32", spans.all_gather<float>("float32"));
  bench::add(all, "ordinary", "float32", spans.gather<float>("float32"));
  bench::add(all, "ordinary", "float32", spans.scatter<float>("float32"));
  bench::add(all, "ordinary", "float32", spans.reduce<float>("float32"));
  bench::add(all, "ordinary", "float32", spans.all_to_all<float>("float32"));
  bench::add(all, "ordinary", "float32", spans.messages<float>("float32"));
  bench::add_all_reduce<library, float>(all, worker.others(), "float32");
  return worker.serve("Gloo", all);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) {
    std::fputs("gloo RANK SIZE\n", stderr);
    return 2;
  }
  try {
    return run_rank(std::atoi(arguments[1]), std::atoi(arguments[2]));
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "gloo: %s\n", problem.what());
    return 1;
  }
}
