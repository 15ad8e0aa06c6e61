#!/bin/sh
# SPDX-License-Identifier: MIT
# nvcc.sh SOURCE_ROOT CEREAL_INCLUDE: a CUDA source file with a kernel that puts device operations behind it, on a
# thrust::device_vector too, compiles, and so do the kernels of the tests that need a GPU; the kernels that hfcomm has in
# PTX assemble. This is the compiled way; the example for GPUs shows that the header-only way works there.
set -eu
nvcc=$("$1/tools/find-cuda" nvcc) && includes=$("$1/tools/find-cuda") || {
  echo 'skipped: there is no nvcc here, or no header of NCCL'
  exit 77
}
root=$1
# Below the build folder, which this runs in: so the way to the sources is the same in each clone, which ccache needs.
folder=$(mktemp -d "$PWD/nvcc.XXXXXX")
trap 'rm -rf "$folder"' EXIT
cd "$folder"
ccache=$(command -v ccache) || ccache=
cat >consumer.cu <<'EOF'
#include <hfcomm/collectives/all_reduce.hpp>
#include <hfcomm/nccl.hpp>
#if __has_include(<thrust/device_vector.h>)
#include <hfcomm/thrust.hpp>

void sum(thrust::device_vector<double>& data, cudaStream_t stream) { hfcomm::all_reduce(data, stream); }
#endif

__global__ void twice(float* value) { value[threadIdx.x] *= 2; }

void twice_and_sum(hfcomm::device_buffer<float>& data, cudaStream_t stream) {
  twice<<<1, static_cast<unsigned>(data.size()), 0, stream>>>(data.data());
  hfcomm::all_reduce(data, stream);
}

int main() { return 0; }
EOF
set -- -I "$1/include" ${2:+-I "$2"}
for include in $includes; do
  set -- "$@" -isystem "$include"
done
$ccache "$nvcc" -std=c++20 -DHFCOMM_NCCL=1 -DHFCOMM_COMPILED=1 "$@" -c consumer.cu -o consumer.o
$ccache "$nvcc" -std=c++20 --expt-relaxed-constexpr -Xcompiler -Wall,-Wextra,-Werror "$@" -c "$root/tests/gpu/kernels.cu" \
  -o kernels.o

cat >ptx.cpp <<'EOF'
#include <cstdio>

#include <hfcomm/core/detail/concat-inl.hpp>
#include <hfcomm/engine/device/device_scaling.hpp>

int main() { return std::fputs(hfcomm::engines::device_scaling::source().c_str(), stdout) < 0; }
EOF
"${CXX:-g++}" -std=c++20 -DHFCOMM_NCCL=1 "$@" ptx.cpp -o ptx -pthread -ldl
./ptx >kernels.ptx
"$(dirname "$nvcc")/ptxas" -arch=sm_90 kernels.ptx -o kernels.cubin
