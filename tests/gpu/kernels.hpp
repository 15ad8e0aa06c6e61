// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include <cuda_runtime_api.h>

/// Device functions of the tests: kernels.cu defines them for a GPU, kernels_of_double.cpp for the test double of CUDA
/// and NCCL, with which the tests themselves are tested. The linked file decides.
namespace gpu {

/// The byte at that place of the pattern `seed`. No two seeds have long parts alike, and a place that was calculated in
/// 32 bits has another byte than it should.
constexpr unsigned char pattern(std::uint64_t place, std::uint64_t seed) {
  std::uint64_t mixed = (place + 1) * 0x9E3779B97F4A7C15U ^ (seed + 1) * 0xC2B2AE3D27D4EB4FU;
  mixed ^= mixed >> 29U;
  mixed *= 0xBF58476D1CE4E5B9U;
  return static_cast<unsigned char>(mixed >> 56U);
}

/// Makes the device current; the process's first call of CUDA. What it returns must live as long as anything of it.
[[nodiscard]] std::shared_ptr<void> open();

/// Returns the free memory of the device.
[[nodiscard]] std::size_t free_memory();
/// Whether NCCL may have reasons to refuse several ranks on it; the double has none.
[[nodiscard]] bool may_refuse_ranks();
/// Whether NCCL can add up 8-bit floats on it: compute capability 9 and later.
[[nodiscard]] bool adds_bytes_of_floats();

/// Puts a kernel on the stream that ends when `*opened` is no longer 0 (pinned host memory; null: never), or after
/// `limit` nanoseconds.
void hold(cudaStream_t stream, int* opened, std::uint64_t limit);
/// Puts a kernel on the stream that writes the pattern, from its place `first` on.
void fill(cudaStream_t stream, void* memory, std::size_t bytes, std::uint64_t seed, std::uint64_t first = 0);
/// How many bytes are not the pattern's, once all that is on the stream is done: waits for it.
[[nodiscard]] std::uint64_t mismatches(cudaStream_t stream, const void* memory, std::size_t bytes, std::uint64_t seed,
                                       std::uint64_t first = 0);
/// Puts a kernel on the stream that makes each number `factor` times what it was.
void multiply(cudaStream_t stream, float* numbers, std::size_t count, float factor);

/// A graph captured from a stream.
class graph {
 public:
  /// `body()` puts operations on the stream, which become the graph's.
  graph(cudaStream_t stream, const std::function<void()>& body);
  void launch(cudaStream_t stream) const;

 private:
  std::shared_ptr<void> made_;
};

}  // namespace gpu
