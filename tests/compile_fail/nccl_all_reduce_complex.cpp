// error: // NCCL reduces no 16-bit integers; a complex number is two reals
// SPDX-License-Identifier: MIT
#include <complex>

#include <hfcomm/nccl.hpp>

int main() {
  hfcomm::device_span<std::complex<float>> waves;
  hfcomm::all_reduce(waves, hfcomm::stream_ref::legacy_default());
}
