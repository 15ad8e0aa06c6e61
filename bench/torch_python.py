# SPDX-License-Identifier: MIT
"""Finds a Python that has PyTorch."""

import functools
import subprocess
import sys


@functools.lru_cache(maxsize=None)
def python_with_torch(wanted=None):
    """`wanted`, or else this interpreter or, where that lacks torch.distributed, the distribution's. None where neither has
    it."""
    for python in [wanted] if wanted else [sys.executable, '/usr/bin/python3']:
        test = [python, '-c', 'import torch.distributed as d; assert d.is_available()']
        try:
            if subprocess.run(test, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0:
                return python
        except OSError:
            pass
    return None
