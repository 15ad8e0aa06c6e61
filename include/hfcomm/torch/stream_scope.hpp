// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/stream_ref.hpp>

namespace hfcomm::torch {

/// Names the stream of the operations on device tensors that this thread begins in a scope. Nested ones replace it.
///
///     const hfcomm::torch::stream_scope scope(stream);
///     hfcomm::torch::all_reduce(gradient);  // on `stream`
///
/// Without it they run on LibTorch's current stream, as LibTorch's own operations do. LibTorch 1.13 does not tell which
/// stream that is, unless it is the default one: there every other stream must be named (usage_error otherwise).
///
/// Thread-safety: of this thread alone.
class stream_scope {
 public:
  explicit stream_scope(stream_ref stream) noexcept;
  stream_scope(const stream_scope&) = delete;
  stream_scope& operator=(const stream_scope&) = delete;
  ~stream_scope();

 private:
  std::optional<stream_ref> before_;
};

}  // namespace hfcomm::torch
