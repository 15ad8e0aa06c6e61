// error: include <hfcomm/nccl.hpp>
// SPDX-License-Identifier: MIT
#include <hfcomm/collectives/all_reduce.hpp>
#include <hfcomm/core/stream_ref.hpp>

// Operations on device memory are declared by another header, which the message names.
int main() {
  hfcomm::device_span<float> gradient;
  hfcomm::all_reduce(gradient, hfcomm::stream_ref::legacy_default());
}
