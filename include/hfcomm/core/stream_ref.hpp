// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <cstddef>

// The types behind cudaStream_t and cudaEvent_t, as CUDA's headers declare them: naming a stream takes none of these.
struct CUstream_st;
struct CUevent_st;

namespace hfcomm {

namespace detail {

/// cuda::stream_ref, cuda::stream, and whatever else shows its stream so.
template <class S>
concept shows_a_stream = requires(const S& stream) {
  { stream.get() } -> std::convertible_to<CUstream_st*>;
};

}  // namespace detail

/// A CUDA stream that somebody else owns: what device operations are put on. Made from a cudaStream_t or a
/// cuda::stream_ref. There is no default: an operation on another stream than its data's producer is the mistake that
/// this is to prevent. `stream_ref::legacy_default()` is stream 0.
class stream_ref {
 public:
  // Implicit, as cuda::stream_ref's are.
  constexpr stream_ref(CUstream_st* stream) noexcept : stream_(stream) {}
  template <detail::shows_a_stream S>
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
