// SPDX-License-Identifier: MIT
#include "torch_devices.hpp"

#include <atomic>
#include <string>

namespace {

using namespace torch_devices;
namespace ht = hfcomm::torch;

/// Tensors on the device that stay until work that was put on a stream is done: LibTorch's allocator gives memory that
/// is freed to later work of the stream only.
class kept_tensors {
 public:
  at::Tensor made(const at::Tensor& host) { return kept_.emplace_back(device_tensor(host)); }

 private:
  std::vector<at::Tensor> kept_;
};

TEST_CASE("torch devices: reductions of each type, in place, on the default stream and on a named one") {
  at_every_size([](const process_group& world, stream_ref stream) {
    const int ranks = world.size();
    for (const at::ScalarType type :
         {at::kByte, at::kChar, at::kInt, at::kLong, at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
      at::Tensor expected = own(0, type);
      for (int rank = 1; rank < ranks; ++rank) {
        expected = expected + own(rank, type);
      }
      const at::Tensor data = device_tensor(own(world.rank(), type));
      ht::all_reduce(data);
      CHECK(at::equal(host_tensor(data), expected));

      const at::Tensor named = device_tensor(own(world.rank(), type));
      fake_cuda::launch(stream.get(), [&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        std::memset(named.data_ptr(), 0, named.nbytes());
      });
      {
        const ht::stream_scope scope(stream);
        ht::all_reduce(named);  // after the kernel
      }
      CHECK(at::equal(host_tensor(named, stream), at::zeros({3, 4}, type)));

      const at::Tensor rooted = device_tensor(own(world.rank(), type));
      ht::reduce(rooted, ranks - 1);
      CHECK(at::equal(host_tensor(rooted), world.rank() == ranks - 1 ? expected : own(world.rank(), type)));
    }
    const at::Tensor any = device_tensor(at::tensor({1, 0, world.rank() == 0 ? 1 : 0}).to(at::kBool));
    ht::all_reduce(any);
    CHECK(at::equal(host_tensor(any), at::tensor({1, 0, 1}).to(at::kBool)));
  });
}

TEST_CASE("torch devices: the collectives that move elements, blocking and started") {
  at_every_size([](const process_group& world, stream_ref /*stream*/) {
    const int ranks = world.size();
    const int last = ranks - 1;
    std::vector<at::Tensor> everyone;
    for (int rank = 0; rank < ranks; ++rank) {
      everyone.push_back(own(rank, at::kComplexFloat));
    }
    const at::Tensor all = at::cat(everyone);
    kept_tensors kept;
    const auto mine = [&] { return kept.made(everyone[as_index(world.rank())]); };
    const auto space = [&](std::int64_t rows) { return kept.made(at::zeros({rows, 4}, at::kComplexFloat)); };
    for (const bool waits : {true, false}) {
      const at::Tensor shared = mine();
      waits ? ht::broadcast(shared, last) : ht::broadcast_async(shared, last).wait();
      CHECK(at::equal(host_tensor(shared), everyone.back()));

      const at::Tensor table = space(3 * ranks);
      waits ? ht::all_gather(mine(), table) : ht::all_gather_async(mine(), table).wait();
      CHECK(at::equal(host_tensor(table), all));
      const auto list = waits ? ht::all_gather(mine()) : ht::all_gather_async(mine()).wait();
      for (int rank = 0; rank < ranks; ++rank) {
        CHECK(at::equal(host_tensor(list[as_index(rank)]), everyone[as_index(rank)]));
      }

      const at::Tensor root_table = world.rank() == last ? space(3 * ranks) : at::Tensor();
      waits ? ht::gather(mine(), root_table, last) : ht::gather_async(mine(), root_table, last).wait();
      CHECK((world.rank() != last || at::equal(host_tensor(root_table), all)));
      const at::Tensor part = space(3);
      waits ? ht::scatter(root_table, part, last) : ht::scatter_async(root_table, part, last).wait();
      CHECK(at::equal(host_tensor(part), everyone[as_index(world.rank())]));

      const at::Tensor exchanged = space(3 * ranks);
      waits ? ht::all_to_all(kept.made(all), exchanged) : ht::all_to_all_async(kept.made(all), exchanged).wait();
      CHECK(at::equal(host_tensor(exchanged), everyone[as_index(world.rank())].repeat({ranks, 1})));

      const at::Tensor scattered = device_tensor(at::zeros({1, 4}));
      const at::Tensor ones = device_tensor(at::ones({ranks, 4}));
      waits ? ht::reduce_scatter(ones, scattered) : ht::reduce_scatter_async(ones, scattered).wait();
      CHECK(at::equal(host_tensor(scattered), at::full({1, 4}, ranks)));
      const at::Tensor sum = device_tensor(at::ones({5}));
      waits ? ht::all_reduce(sum) : ht::all_reduce_async(sum).wait();
      CHECK(at::equal(host_tensor(sum), at::full({5}, ranks)));
    }
  });
}

TEST_CASE("torch devices: parts of different numbers of rows") {
  at_every_size([](const process_group& world, stream_ref /*stream*/) {
    const int ranks = world.size();
    std::vector<std::size_t> rows;
    std::vector<at::Tensor> parts;
    for (int rank = 0; rank < ranks; ++rank) {
      rows.push_back(as_index(rank));
      parts.push_back(at::full({rank, 2}, rank, at::kInt));
    }
    const at::Tensor all = at::cat(parts);
    const at::Tensor own_part = parts[as_index(world.rank())];
    kept_tensors kept;
    const at::Tensor gathered = device_tensor(at::zeros_like(all));
    ht::all_gather(kept.made(own_part), gathered, rows);
    CHECK(at::equal(host_tensor(gathered), all));
    const at::Tensor rooted = device_tensor(at::zeros_like(all));
    ht::gather(kept.made(own_part), rooted, rows, 0);
    CHECK((world.rank() != 0 || at::equal(host_tensor(rooted), all)));
    const at::Tensor scattered = device_tensor(at::zeros_like(own_part));
    ht::scatter(rooted, scattered, rows, 0);
    CHECK(at::equal(host_tensor(scattered), own_part));
    const at::Tensor sums = device_tensor(at::zeros_like(own_part));
    ht::reduce_scatter(gathered, sums, rows);
    CHECK(at::equal(host_tensor(sums), own_part * ranks));
    const std::vector<std::size_t> own_rows(as_index(ranks), as_index(world.rank()));
    const at::Tensor exchanged = device_tensor(at::zeros({ranks * world.rank(), 2}, at::kInt));
    ht::all_to_all(gathered, rows, exchanged, own_rows);
    CHECK(at::equal(host_tensor(exchanged), own_part.repeat({ranks, 1})));
  });
}

TEST_CASE("torch devices: a started operation is on another stream, and keeps its tensor") {
  for (const int ranks : {1, 2, 3}) {
    const fake_cuda::install fake;
    std::atomic<int> checked = 0;
    run_devices(ranks, [&](const process_group& world, stream_ref stream) {
      connect_device(world);
      at::Tensor data = device_tensor(own(world.rank()));
      const auto* const elements = data.data_ptr<float>();
      if (world.rank() == 0) {  // its part begins late
        fake_cuda::launch(stream.get(), [&] {
          while (checked.load() != world.size()) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
        });
      }
      const ht::stream_scope scope(stream);
      auto started = ht::all_reduce_async(data);
      data.reset();
      if (world.rank() != 0) {
        REQUIRE(cuda::runtime().cudaStreamSynchronize(stream.get()) == cudaSuccess);  // it is not on this stream
      }
      CHECK_FALSE(started.wait(std::chrono::milliseconds(20)));
      CHECK(elements[1] == own(world.rank()).view(-1)[1].item<float>());  // the memory is still there
      CHECK(fake_cuda::live().allocations >= as_index(world.size()));
      ++checked;
      started.wait();
    });
  }
}

TEST_CASE("torch devices: messages run on the stream") {
  at_every_size(
      [](const process_group& world, stream_ref /*stream*/) {
        const int partner = world.rank() ^ 1;
        if (partner >= world.size()) {
          connect_device(world);
          return;
        }
        const at::Tensor mine = device_tensor(own(world.rank()));
        const at::Tensor received = device_tensor(at::zeros({3, 4}));
        if (world.rank() < partner) {
          ht::send(mine, partner);
          ht::recv(received, partner);
        } else {
          ht::recv(received, partner);
          ht::send(mine, partner);
        }
        CHECK(at::equal(host_tensor(received), own(partner)));
      },
      2);
}

TEST_CASE("torch devices: mistakes are a usage_error on every rank that makes them, and the group stays usable") {
  at_every_size([](const process_group& world, stream_ref stream) {
    connect_device(world);
    const at::Tensor data = device_tensor(own(0));
    const at::Tensor host = own(0);
    const auto refuses = [&](const std::string& text, auto call) {
      CHECK_CONTAINS(error_of<usage_error>(call).what(), text);
      CHECK_FALSE(world.broken());
    };
    refuses("all tensors of a call must be in host memory, or on one device", [&] { ht::all_to_all(data, host); });
    refuses("the output is on the device cuda:" + std::to_string(world.rank()), [&] { ht::all_to_all(host, data); });
    refuses("all tensors of a call", [&] {
      const at::Device next(at::kCUDA, static_cast<c10::DeviceIndex>((world.rank() + 1) % 8));
      ht::all_to_all(data, at::from_blob(
                               data.data_ptr(), data.sizes(), data.strides(), [](void* /*data*/) {},
                               data.options().device(next), next));
    });
    refuses("is not contiguous", [&] { ht::all_reduce(data.t()); });
    refuses("NCCL reduces no 16-bit integers", [&] { ht::all_reduce(device_tensor(own(0, at::kShort))); });
    refuses("no complex numbers", [&] { ht::all_reduce(device_tensor(own(0, at::kComplexFloat))); });
    refuses("type double", [&] { ht::all_to_all(data, device_tensor(own(0, at::kDouble))); });
    refuses("is not a rank", [&] { ht::broadcast(data, world.size()); });
    refuses("is not contiguous", [&] { (void)ht::all_reduce_async(data.t()); });
    refuses("there are only send, and recv", [&] { (void)ht::isend(data, 0); });
    refuses("there are only send, and recv", [&] { (void)ht::irecv(data, 0); });
    refuses("there are only send, and recv", [&] { (void)ht::recv(data, hfcomm::any_source); });
    if (world.size() > 1) {
      refuses("there are only send, and recv", [&] { ht::recv(data, (world.rank() + 1) % world.size(), world, 3); });
    }
    refuses("copy it into host memory", [&] {
      std::vector<std::byte> bytes;
      hfcomm::encode(data, bytes);
    });
    refuses("does not tell which it is: name it with hfcomm::torch::stream_scope", [&] {
      device_guard::stream_number() = 3;
      try {
        ht::all_reduce(data);
      } catch (...) {
        device_guard::stream_number() = 0;
        throw;
      }
    });
    device_guard::stream_number() = 3;
    {
      const ht::stream_scope scope(stream);
      ht::all_reduce(data);
    }
    device_guard::stream_number() = 0;
    CHECK(at::equal(host_tensor(data, stream), own(0) * world.size()));
  });
}

TEST_CASE("torch devices: where one rank's tensors are unusable, the others get a peer_error where they wait") {
  at_every_size(
      [](const process_group& world, stream_ref stream) {
        connect_device(world);
        const ht::stream_scope scope(stream);
        const at::Tensor data = device_tensor(own(0));
        const at::Tensor out = device_tensor(at::zeros({3 * world.size(), 4}));
        if (world.rank() == 0) {
          CHECK_CONTAINS(error_of<usage_error>([&] { ht::all_gather(data, own(0)); }).what(), "one device");
        } else {
          CHECK_CONTAINS(error_of<peer_error>([&] {
                           ht::all_gather(data, out);
                           synchronize(stream, world);
                         }).what(),
                         "one device");
        }
      },
      2);
}

}  // namespace
