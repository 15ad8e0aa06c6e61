#!/bin/sh
# SPDX-License-Identifier: MIT
echo 'skipped: there is no LibTorch for this compiler (tools/install-dependencies --torch), or a sanitizer is on'
exit 77
