// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>

#include <hfcomm/core/stream_ref.hpp>

#ifdef __CUDACC__
#include <stdexcept>
#include <string>
#else
#include <functional>
#include <stdexcept>
#include <utility>
#endif

/// Marks a function that nvcc compiles for the GPU as well as for the host; other compilers know the host only.
#ifdef __CUDACC__
#define CHAR_LM_KERNEL __host__ __device__
#else
#define CHAR_LM_KERNEL
#endif

namespace char_lm {

#ifdef __CUDACC__

namespace detail {

template <class Functor>
__global__ void each(std::size_t count, Functor functor) {
  const std::size_t element = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (element < count)
    functor(element);
}

}  // namespace detail

/// Puts functor(i) for each i below `count` on the stream, one GPU thread each, in no order. Does not wait. Throws
/// std::runtime_error where CUDA does not take it.
template <class Functor>
void for_each_element(std::size_t count, hfcomm::stream_ref stream, const Functor& functor) {
  if (count == 0)
    return;
  constexpr unsigned threads = 128;  // few, as some kernels have one thread per column or row only
  const auto blocks = static_cast<unsigned>((count + threads - 1) / threads);
  detail::each<<<blocks, threads, 0, stream.get()>>>(count, functor);
  if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess)
    throw std::runtime_error(std::string("a kernel cannot be launched: ") + cudaGetErrorString(status));
}

#else

/// Puts a function of the host on a stream.
using host_launch = void (*)(hfcomm::stream_ref stream, std::function<void()> work);

/// Without nvcc there are no kernels: what runs them instead, over a double of CUDA whose device memory the host can
/// read. Whoever has such a double sets it before the first kernel.
inline host_launch& kernels_on_host() noexcept {
  static host_launch launch = nullptr;
  return launch;
}

template <class Functor>
void for_each_element(std::size_t count, hfcomm::stream_ref stream, const Functor& functor) {
  if (kernels_on_host() == nullptr)
    throw std::logic_error("this program was not compiled by nvcc, so it has no kernels");
  if (count == 0)
    return;
  kernels_on_host()(stream, [count, functor] {
    for (std::size_t element = 0; element < count; ++element)
      functor(element);
  });
}

#endif

}  // namespace char_lm
