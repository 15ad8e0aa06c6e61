#!/bin/sh
# SPDX-License-Identifier: MIT
# aarch64.sh SOURCE_ROOT CEREAL_INCLUDE: all that tests/odr calls compiles for another processor.
set -eu
compiler=aarch64-linux-gnu-g++
command -v $compiler >/dev/null || {
  echo "skipped: there is no $compiler here"
  exit 77
}
# Below the build folder, which this runs in: so the way to the sources is the same in each clone, which ccache needs.
folder=$(mktemp -d "$PWD/aarch64.XXXXXX")
trap 'rm -rf "$folder"' EXIT
cd "$folder"
# Of the system's headers only cereal's: the others are not this processor's.
mkdir include
ln -s "${2:-/usr/include}/cereal" include/cereal
$compiler -std=c++20 -Wall -Wextra -Wconversion -Werror -I "$1/include" -isystem include \
  -c "$1/tests/odr/first.cpp" -o first.o
