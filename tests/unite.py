#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""unite.py OUTPUT_FOLDER PART SIZE FILE...: prints a translation unit for OUTPUT_FOLDER that includes some of the files.

These are the SIZE files of the part with this number, from 0. Paths are relative. Meson's own unity builds have absolute
ones, with which ccache finds nothing of another clone.
"""

import os
import sys

folder, part, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for path in sys.argv[4:][part * size:(part + 1) * size]:
    print(f'#include "{os.path.relpath(path, folder)}"')
