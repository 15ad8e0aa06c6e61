# SPDX-License-Identifier: MIT
"""Builds the programs of bench/compare and bench/scale, optimised."""

import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def build_programs(folder, target, who):
    """Builds a target, as far as its libraries are installed, and returns the folder of its programs."""
    for tool in ('meson', 'ninja'):
        if shutil.which(tool) is None:
            sys.exit(f'{who}: there is no {tool}; tools/install-dependencies --bench brings all')
    setup = ['meson', 'setup', str(folder), str(ROOT), '--buildtype=release', '-Dtests=false', '-Dexamples=false']
    if (folder / 'build.ninja').exists():
        setup.insert(2, '--reconfigure')
    for command in (setup, ['ninja', '-C', str(folder), target]):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f'{done.stdout}\n{who}: this failed: {" ".join(command)}')
    return folder / 'bench'
