// SPDX-License-Identifier: MIT
#pragma once

#include "../torch/torch_doctest.hpp"

#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/as_strided_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "../device/device_ranks.hpp"

#include <hfcomm/torch.hpp>

/// Helpers of the tests of device tensors: the CPU's LibTorch with the double of CUDA and NCCL as its CUDA. Ranks are
/// threads, whose tensors are on the device of their number.
namespace torch_devices {

using namespace device_ranks;

/// LibTorch's view of the double's devices: a current device, and the stream that a test chooses as the current one.
/// Only stream 0 has a meaning for LibTorch 1.13.
class device_guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  [[nodiscard]] c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  [[nodiscard]] c10::Device getDevice() const override {
    int device = 0;
    // LibTorch's threads may ask when there is no double any more.
    if (fake_cuda::here() != nullptr) {
      (void)cuda::runtime().cudaGetDevice(&device);
    }
    return {type(), static_cast<c10::DeviceIndex>(device)};
  }
  void setDevice(c10::Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (fake_cuda::here() != nullptr) {
      (void)cuda::runtime().cudaSetDevice(device.index());
    }
  }
  [[nodiscard]] c10::Stream getStream(c10::Device device) const noexcept override {
    return c10::Stream(c10::Stream::UNSAFE, device, stream_number());
  }
  [[nodiscard]] c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    return c10::Stream(c10::Stream::UNSAFE, stream.device(), std::exchange(stream_number(), stream.id()));
  }
  [[nodiscard]] c10::DeviceIndex deviceCount() const noexcept override { return 8; }

  /// Returns the number of this thread's current stream.
  static c10::StreamId& stream_number() {
    thread_local c10::StreamId number = 0;
    return number;
  }
};
inline const c10::impl::DeviceGuardImplRegistrar registered_guard(c10::DeviceType::CUDA, new device_guard);

/// LibTorch's view of CUDA itself. LibTorch has had two types of device numbers.
class cuda_hooks final : public at::CUDAHooksInterface {
  template <class Device>
  static Device number_of_device(bool (at::CUDAHooksInterface::*)(Device) const);
  using device_number = decltype(number_of_device(&at::CUDAHooksInterface::hasPrimaryContext));

 public:
  explicit cuda_hooks(at::CUDAHooksArgs /*none*/) {}
  [[nodiscard]] bool hasCUDA() const override { return true; }
  [[nodiscard]] bool hasPrimaryContext(device_number /*device*/) const override { return true; }
};

// The few kernels of CUDA tensors that the tests and hfcomm call beside NCCL.

inline at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides,
                             c10::optional<c10::SymInt> offset) {
  return at::native::as_strided_tensorimpl(self, c10::asIntArrayRefUnchecked(sizes),
                                           c10::asIntArrayRefUnchecked(strides),
                                           offset ? c10::optional<std::int64_t>(offset->expect_int()) : c10::nullopt);
}

/// Sets the memory to zero in the order of the legacy default stream.
inline at::Tensor& zero(at::Tensor& self) {
  REQUIRE(cuda::runtime().cudaMemsetAsync(self.data_ptr(), 0, self.nbytes(), nullptr) == cudaSuccess);
  return self;
}

/// Returns a tensor in memory of the current device of the double, like `host`.
inline at::Tensor device_tensor(const at::Tensor& host) {
  const at::Tensor from = host.contiguous();
  auto* const memory = new device_buffer<std::byte>(std::max<std::size_t>(from.nbytes(), 1));
  std::memcpy(memory->data(), from.data_ptr(), from.nbytes());
  const auto index = device_guard().getDevice().index();
  return at::from_blob(
      memory->data(), from.sizes(), from.strides(), [memory](void* /*data*/) { delete memory; },
      from.options().device(at::kCUDA, index), at::Device(at::kCUDA, index));
}

inline at::Tensor empty(c10::SymIntArrayRef sizes, c10::optional<at::ScalarType> type,
                        c10::optional<at::Layout> /*layout*/, c10::optional<at::Device> /*device*/,
                        c10::optional<bool> /*pin*/, c10::optional<at::MemoryFormat> /*format*/) {
  return device_tensor(at::zeros(c10::asIntArrayRefUnchecked(sizes), type.value_or(at::kFloat)));
}

/// Returns a copy in host memory, after all work on the stream.
inline at::Tensor host_tensor(const at::Tensor& tensor, stream_ref stream = stream_ref::legacy_default()) {
  REQUIRE(cuda::runtime().cudaStreamSynchronize(stream.get()) == cudaSuccess);
  at::Tensor copy = at::empty(tensor.sizes(), tensor.options().device(at::kCPU).requires_grad(false));
  std::memcpy(copy.data_ptr(), tensor.data_ptr(), tensor.nbytes());
  return copy;
}

/// Numbers of each type that add up exactly, and differ from rank to rank.
inline at::Tensor own(int rank, at::ScalarType type = at::kFloat) {
  return (at::arange(12, at::kLong).reshape({3, 4}) % 5 + rank).to(type);
}

}  // namespace torch_devices

// Its macro names ::torch, which hfcomm::torch would hide in a namespace that uses hfcomm.
TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("as_strided", torch_devices::as_strided);
  library.impl("empty.memory_format", torch_devices::empty);
  library.impl("zero_", torch_devices::zero);
}
namespace at {
using CUDAHooks = torch_devices::cuda_hooks;  // the name by which LibTorch finds them
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at
