#!/bin/sh
# SPDX-License-Identifier: MIT
echo 'skipped: the headers of CUDA and NCCL are not there; see tools/find-cuda'
exit 77
