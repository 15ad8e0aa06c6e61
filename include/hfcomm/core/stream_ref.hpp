// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <cstddef>

// The types behind cudaStream_t and cudaEvent_t, as CUDA's headers declare them: naming a stream takes none of these.
struct CUstream_st;
struct CUevent_st;

namespace hfcomm {

namespace detail {

/// A type with a `get()` that returns a CUDA stream: cuda::stream_ref, cuda::stream, and others.
template <class S>
concept stream_like = requires(const S& stream) {
  { stream.get() } -> std::convertible_to<CUstream_st*>;
};

}  // namespace detail

/// A CUDA stream for device operations, not owned. Made from a cudaStream_t or a cuda::stream_ref. There is no default,
/// because an operation must not be on another stream than the producer of its data by mistake.
/// `stream_ref::legacy_default()` is stream 0.
class stream_ref {
 public:
  // Implicit, as cuda::stream_ref's are.
  constexpr stream_ref(CUstream_st* stream) noexcept : stream_(stream) {}
  template <detail::stream_like S>
  constexpr stream_ref(const S& stream) : stream_(stream.get()) {}
  stream_ref(int) = delete;             // a number is no stream
  stream_ref(std::nullptr_t) = delete;  // say legacy_default()

  [[nodiscard]] static constexpr stream_ref legacy_default() noexcept {
    return stream_ref(static_cast<CUstream_st*>(nullptr));
  }

  [[nodiscard]] constexpr CUstream_st* get() const noexcept { return stream_; }
  [[nodiscard]] friend constexpr bool operator==(stream_ref, stream_ref) noexcept = default;

 private:
  CUstream_st* stream_;
};

}  // namespace hfcomm
