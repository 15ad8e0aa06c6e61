// SPDX-License-Identifier: MIT
#include "torch_devices.hpp"

#include <string>

namespace {

using namespace torch_devices;
namespace ht = hfcomm::torch;

/// A function whose gradient is made on the device, and whose value is a number in host memory: LibTorch's CPU library
/// runs no kernels of CUDA tensors, but all of its autograd.
struct device_product : ::torch::autograd::Function<device_product> {
  static at::Tensor forward(::torch::autograd::AutogradContext* context, const at::Tensor& weight, double factor) {
    context->saved_data["factor"] = factor;
    context->saved_data["sizes"] = weight.sizes();
    context->saved_data["device"] = weight.device();
    return at::zeros({});
  }
  static ::torch::autograd::variable_list backward(::torch::autograd::AutogradContext* context,
                                                   const ::torch::autograd::variable_list& gradients) {
    REQUIRE(device_guard().getDevice() == context->saved_data["device"].toDevice());
    const double value = context->saved_data["factor"].toDouble() * gradients[0].item<double>();
    return {device_tensor(at::full(context->saved_data["sizes"].toIntVector(), value)), at::Tensor()};
  }
};

/// Two weights and a buffer on a device, of which a forward may leave out the second weight.
struct device_net : ::torch::nn::Module {
  explicit device_net(int rank) {
    const auto leaf = [&](std::vector<std::int64_t> sizes) {
      return device_tensor(at::full(sizes, rank + 1.0, at::kFloat)).requires_grad_();
    };
    one = register_parameter("one", leaf({3, 4}));
    other = register_parameter("other", leaf({5}));
    frozen = register_parameter("frozen", device_tensor(at::full({2}, rank + 1.0, at::kFloat)), false);
    buffer = register_buffer("buffer", device_tensor(at::full({6}, rank + 1.0, at::kFloat)));
    steps = register_buffer("steps", at::full({1}, rank + 1, at::kLong));  // in host memory
  }
  at::Tensor forward(double factor, bool uses_other) {
    at::Tensor sum = device_product::apply(one, factor);
    return uses_other ? sum + device_product::apply(other, 2 * factor) : sum;
  }
  void drop_gradients() {
    one.mutable_grad().reset();
    other.mutable_grad().reset();
  }

  at::Tensor one, other, frozen, buffer, steps;
};

bool all_are(const at::Tensor& tensor, double value) {
  return at::equal(host_tensor(tensor), at::full(tensor.sizes(), value, at::kFloat));
}

double mean_factor(int ranks) { return (ranks + 1) / 2.0; }

TEST_CASE("torch devices: parameters and buffers are shared, and backward leaves averages in device memory") {
  at_every_size([](const process_group& world, stream_ref /*stream*/) {
    auto net = std::make_shared<device_net>(world.rank());
    ht::distributed_data_parallel ddp(net, {.ddp = {.first_bucket_bytes = 16, .bucket_bytes = 16}});
    for (const auto& shared : {net->one, net->other, net->frozen, net->buffer}) {
      CHECK(all_are(shared, 1));
    }
    CHECK(net->steps.item<std::int64_t>() == 1);
    for (int pass = 1; pass <= 3; ++pass) {
      net->drop_gradients();
      ddp.forward(pass * (world.rank() + 1.0), true).backward();
      CHECK(all_are(net->one.grad(), pass * mean_factor(world.size())));
      CHECK(all_are(net->other.grad(), 2 * pass * mean_factor(world.size())));
      CHECK(net->one.grad().device() == net->one.device());
      if (world.size() > 1) {
        const auto memory = ddp.averager().gradient(0);
        CHECK(net->one.grad().data_ptr() == static_cast<void*>(memory.data()));
        CHECK(ddp.last_pass().bytes == 17 * sizeof(float));
      }
    }
    net->one.grad().zero_();
    CHECK(all_are(net->one.grad(), 0));
  });
}

TEST_CASE("torch devices: host_reduce averages the gradients of a module on the CPU, and shares it without NCCL") {
  at_every_size([](const process_group& world, stream_ref /*stream*/) {
    auto net = std::make_shared<device_net>(world.rank());
    ht::distributed_data_parallel ddp(net, {.ddp = {.host_reduce = true}});
    for (const auto& shared : {net->one, net->other, net->frozen, net->buffer}) {
      CHECK(all_are(shared, 1));
    }
    for (int pass = 1; pass <= 3; ++pass) {
      net->drop_gradients();
      ddp.forward(pass * (world.rank() + 1.0), true).backward();
      CHECK(all_are(net->one.grad(), pass * mean_factor(world.size())));
      CHECK(all_are(net->other.grad(), 2 * pass * mean_factor(world.size())));
    }
    CHECK((world.size() == 1 || world.device_backend() == "none"));
  });
}

TEST_CASE("torch devices: unused parameters, and gradients that were left undefined in no_sync") {
  at_every_size(
      [](const process_group& world, stream_ref /*stream*/) {
        auto net = std::make_shared<device_net>(world.rank());
        ht::distributed_data_parallel ddp(net, {.ddp = {.find_unused_parameters = true}});
        ddp.forward(1, world.rank() == 0).backward();
        CHECK(all_are(net->one.grad(), 1));
        CHECK(all_are(net->other.grad(), 2.0 / world.size()));
        net->drop_gradients();
        {
          const auto guard = ddp.no_sync();
          ddp.forward(world.rank() + 1.0, false).backward();
          CHECK(all_are(net->one.grad(), world.rank() + 1.0));
          CHECK_FALSE(net->other.grad().defined());
        }
      },
      2);
}

TEST_CASE("torch devices: a pass on another stream than the first is a usage_error, and a named one is used") {
  at_every_size(
      [](const process_group& world, stream_ref stream) {
        auto net = std::make_shared<device_net>(world.rank());
        const ht::stream_scope outer(stream);
        ht::distributed_data_parallel ddp(net);
        ddp.forward(1, true).backward();
        CHECK(at::equal(host_tensor(net->one.grad(), stream), at::ones({3, 4})));
        net->drop_gradients();
        {
          const ht::stream_scope inner(stream_ref::legacy_default());
          CHECK_CONTAINS(error_of<usage_error>([&] { (void)ddp.forward(1, true); }).what(), "on another stream");
        }
        CHECK_FALSE(world.broken());
      },
      2);
}

TEST_CASE("torch devices: modules that are on several devices or partly on one are refused on every rank") {
  at_every_size(
      [](const process_group& world, stream_ref /*stream*/) {
        struct mixed : ::torch::nn::Module {
          mixed(const at::Tensor& first, const at::Tensor& second) {
            register_parameter("first", first);
            register_parameter("second", second);
          }
        };
        const at::Tensor mine = device_tensor(own(0)).requires_grad_();
        const at::Device next(at::kCUDA, static_cast<c10::DeviceIndex>((world.rank() + 1) % 8));
        const at::Tensor elsewhere = at::from_blob(
            mine.data_ptr(), mine.sizes(), mine.strides(), [](void* /*data*/) {},
            mine.options().requires_grad(false).device(next), next);
        const auto refused = [&](const std::string& text, const at::Tensor& second) {
          auto net = std::make_shared<mixed>(mine, second.detach().requires_grad_());
          CHECK_CONTAINS(error_of<usage_error>([&] { const ht::distributed_data_parallel ddp(net); }).what(), text);
          CHECK_FALSE(world.broken());
        };
        refused("start one for each", elsewhere);
        refused("use two objects", own(0));
      },
      2);
}

}  // namespace
