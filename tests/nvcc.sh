#!/bin/sh
# SPDX-License-Identifier: MIT
# nvcc.sh SOURCE_ROOT CEREAL_INCLUDE: a CUDA source file that includes everything compiles.
set -eu
command -v nvcc >/dev/null || {
  echo 'skipped: there is no nvcc here'
  exit 77
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/consumer.cu" <<'EOF'
#include <hfcomm/comm.hpp>

int main() { return hfcomm::world_size() - 1; }
EOF
nvcc -std=c++20 -I "$1/include" ${2:+-I "$2"} -c "$folder/consumer.cu" -o "$folder/consumer.o"
