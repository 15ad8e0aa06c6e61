#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# mpi.sh [PROGRAM]: the cases of links (cases.hpp) between ranks of Open MPI. No case in which a machine is lost: mpirun
# would end the others.
set -euo pipefail
if [[ $# -eq 0 ]] || ! mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
  echo "skipped: Open MPI's headers or its mpirun are not installed"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for case in order:3 sizes:2 many:3 sleep:2 lengths:2 delivered:2; do
  machines=${case#*:}
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 60 mpirun --oversubscribe \
    --mca mpi_yield_when_idle 1 -n "$machines" "$1" mpi mpi "$machines" "$folder/meeting" "${case%:*}" || {
    echo "case ${case%:*} failed"
    exit 1
  }
done
