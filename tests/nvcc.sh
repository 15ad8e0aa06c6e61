#!/bin/sh
# SPDX-License-Identifier: MIT
# nvcc.sh SOURCE_ROOT CEREAL_INCLUDE: a CUDA source file that includes everything, has a kernel, and puts a device
# operation behind it compiles.
set -eu
nvcc=$("$1/tools/find-cuda" nvcc) && includes=$("$1/tools/find-cuda") || {
  echo 'skipped: there is no nvcc here, or no header of NCCL'
  exit 77
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/consumer.cu" <<'EOF'
#include <hfcomm/comm.hpp>

__global__ void twice(float* value) { value[threadIdx.x] *= 2; }

void twice_and_sum(hfcomm::device_buffer<float>& data, cudaStream_t stream) {
  twice<<<1, static_cast<unsigned>(data.size()), 0, stream>>>(data.data());
  hfcomm::all_reduce(data, stream);
}

int main() { return hfcomm::world_size() - 1; }
EOF
set -- -I "$1/include" ${2:+-I "$2"}
for include in $includes; do
  set -- "$@" -I "$include"
done
"$nvcc" -std=c++20 -DHFCOMM_NCCL=1 "$@" -c "$folder/consumer.cu" -o "$folder/consumer.o"
