#!/bin/sh
# SPDX-License-Identifier: MIT
# aarch64.sh SOURCE_ROOT CEREAL_INCLUDE: all that tests/odr calls compiles for another processor.
set -eu
compiler=aarch64-linux-gnu-g++
command -v $compiler >/dev/null || {
  echo "skipped: there is no $compiler here"
  exit 77
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Of the system's headers only cereal's: the others are not this processor's.
mkdir "$folder/include"
ln -s "${2:-/usr/include}/cereal" "$folder/include/cereal"
$compiler -std=c++20 -Wall -Wextra -Wconversion -Werror -I "$1/include" -isystem "$folder/include" \
  -c "$1/tests/odr/first.cpp" -o "$folder/first.o"
