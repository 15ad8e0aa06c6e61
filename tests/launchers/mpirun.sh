#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# mpirun.sh PROGRAM: a program without MPI, started by Open MPI's mpirun, is one job.
set -euo pipefail
if ! mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
  echo "skipped: Open MPI's mpirun is not installed"
  exit 77
fi
for ranks in 1 2 4; do
  output=$(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 60 mpirun --oversubscribe -n "$ranks" "$1")
  expected="ranks $ranks sum $((ranks * (ranks - 1) / 2)) local $ranks"
  [[ $output == "$expected" ]] || {
    echo "with $ranks ranks: \"$output\" instead of \"$expected\""
    exit 1
  }
done
